-- A query with state of its own: every payment puts its store's timer off; when one fires, the store has been quiet for five seconds.
CREATE TYPE quiet AS (store text, last_seen timestamptz);

CREATE FUNCTION store_seen(key text, rows payment[]) RETURNS SETOF quiet LANGUAGE plpgsql AS $$
BEGIN
    PERFORM stream.delete_timer(t) FROM stream.list_timers() t;
    PERFORM stream.state_update('last_seen', rows[cardinality(rows)].ts);
    PERFORM stream.register_timer(stream.processing_time_now() + interval '5 seconds');
END $$;

CREATE FUNCTION store_quiet(key text, expires_at timestamptz) RETURNS SETOF quiet LANGUAGE sql AS
$$ SELECT key, stream.state_get('last_seen', NULL::timestamptz) $$;

SELECT stream.create_processor('quiet_store', 'store_seen(text,payment[])', 'store_quiet(text,timestamptz)',
    state => '{"last_seen": {"kind": "value", "type": "timestamptz"}}', time_mode => 'processing_time');

SELECT stream.create_query('quiet_stores', $$
    SELECT q.* FROM payment p, LATERAL stream.transform_with_state('quiet_store', p.store, p) AS q(store text, last_seen timestamptz) $$,
    stream.to_table('quiet_store'));
