/*
 * Custom state: processors, and what their handlers call.
 */

CREATE TABLE stream.processor (
    name         text NOT NULL,
    owner        name NOT NULL,
    handle_input text NOT NULL,
    handle_timer text,
    state        jsonb NOT NULL,
    time_mode    text NOT NULL,
    event_time   text,
    created_at   timestamptz NOT NULL,
    CONSTRAINT processor_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE stream.processor IS 'processors of transform_with_state; functions and types by qualified name, resolved when a batch begins';
SELECT pg_catalog.pg_extension_config_dump('stream.processor', '');

CREATE VIEW stream.processors WITH (security_barrier) AS
    SELECT p.name, p.owner, p.handle_input, p.handle_timer, p.state, p.time_mode, p.event_time, p.created_at FROM stream.processor p;
COMMENT ON VIEW stream.processors IS 'processors of transform_with_state: handlers, declared state, time mode';
GRANT SELECT ON stream.processors TO PUBLIC;

CREATE FUNCTION stream.create_processor(
    name          text,
    handle_input  regprocedure,
    handle_timer  regprocedure DEFAULT NULL,
    state         jsonb        DEFAULT '{}',
    time_mode     text         DEFAULT 'none',
    event_time    text         DEFAULT NULL,
    if_not_exists boolean      DEFAULT false
) RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_create_processor';
COMMENT ON FUNCTION stream.create_processor(text, regprocedure, regprocedure, jsonb, text, text, boolean) IS
    'makes a processor: handlers and declared state for transform_with_state; state like {"seen": {"kind": "value", "type": "timestamptz", "ttl": "1 hour"}}; event_time names the column of the result that is event time for what stands above';

CREATE FUNCTION stream.drop_processor(name text, if_exists boolean DEFAULT false) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_drop_processor';
COMMENT ON FUNCTION stream.drop_processor(text, boolean) IS 'drops a processor; refused while a query uses it';

CREATE FUNCTION stream.transform_with_state(processor text, key "any", "row" "any") RETURNS SETOF record
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_transform_with_state';
COMMENT ON FUNCTION stream.transform_with_state(text, "any", "any") IS
    'in FROM of a streaming query: LATERAL stream.transform_with_state(processor, key, row) AS t(col type, …); calls the processor''s handlers, once per key and batch';

CREATE FUNCTION stream.state_exists(var text) RETURNS boolean
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_state_exists';
COMMENT ON FUNCTION stream.state_exists(text) IS 'inside a handler: has the variable a value, elements or entries for the current key?';

CREATE FUNCTION stream.state_get(var text, type anyelement) RETURNS anyelement
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_state_get';
COMMENT ON FUNCTION stream.state_get(text, anyelement) IS 'inside a handler: the variable''s value for the current key, NULL when there is none; NULL::type tells the type';

CREATE FUNCTION stream.state_update(var text, value "any") RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_state_update';
COMMENT ON FUNCTION stream.state_update(text, "any") IS 'inside a handler: sets the variable for the current key; a TTL starts anew';

CREATE FUNCTION stream.state_clear(var text) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_state_clear';
COMMENT ON FUNCTION stream.state_clear(text) IS 'inside a handler: forgets the variable for the current key, whatever its kind';

CREATE FUNCTION stream.list_get(var text, type anyelement) RETURNS SETOF anyelement
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_list_get';
COMMENT ON FUNCTION stream.list_get(text, anyelement) IS 'inside a handler: the list''s elements in the order they were appended';

CREATE FUNCTION stream.list_append(var text, value "any") RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_list_append';
COMMENT ON FUNCTION stream.list_append(text, "any") IS 'inside a handler: appends to the list; a TTL is the element''s own';

CREATE FUNCTION stream.list_put(var text, "values" "any") RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_list_put';
COMMENT ON FUNCTION stream.list_put(text, "any") IS 'inside a handler: replaces the list by the elements of an array';

CREATE FUNCTION stream.list_clear(var text) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_list_clear';
COMMENT ON FUNCTION stream.list_clear(text) IS 'inside a handler: empties the list';

CREATE FUNCTION stream.map_get(var text, k "any", type anyelement) RETURNS anyelement
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_map_get';
COMMENT ON FUNCTION stream.map_get(text, "any", anyelement) IS 'inside a handler: the map''s value under a key, NULL when there is none';

CREATE FUNCTION stream.map_put(var text, k "any", v "any") RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_map_put';
COMMENT ON FUNCTION stream.map_put(text, "any", "any") IS 'inside a handler: sets the map''s value under a key; a TTL is the entry''s own';

CREATE FUNCTION stream.map_contains(var text, k "any") RETURNS boolean
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_map_contains';
COMMENT ON FUNCTION stream.map_contains(text, "any") IS 'inside a handler: has the map a value under that key?';

CREATE FUNCTION stream.map_remove(var text, k "any") RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_map_remove';
COMMENT ON FUNCTION stream.map_remove(text, "any") IS 'inside a handler: forgets one entry of the map';

CREATE FUNCTION stream.map_clear(var text) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_map_clear';
COMMENT ON FUNCTION stream.map_clear(text) IS 'inside a handler: empties the map';

CREATE FUNCTION stream.map_entries(var text, key_type anyelement, value_type anycompatible) RETURNS TABLE (key anyelement, value anycompatible)
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_map_entries';
COMMENT ON FUNCTION stream.map_entries(text, anyelement, anycompatible) IS 'inside a handler: all entries of the map, in the order their keys were first put';

CREATE FUNCTION stream.register_timer(at timestamptz) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_register_timer';
COMMENT ON FUNCTION stream.register_timer(timestamptz) IS
    'inside a handler: handle_timer is called for the current key at that time (of the clock or the watermark, as time_mode says); registering it twice is once';

CREATE FUNCTION stream.delete_timer(at timestamptz) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_delete_timer';
COMMENT ON FUNCTION stream.delete_timer(timestamptz) IS 'inside a handler: the timer of the current key at that time will not fire';

CREATE FUNCTION stream.list_timers() RETURNS SETOF timestamptz
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_list_timers';
COMMENT ON FUNCTION stream.list_timers() IS 'inside a handler: timers of the current key still to fire, earliest first';

CREATE FUNCTION stream.processing_time_now() RETURNS timestamptz
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_processing_time_now';
COMMENT ON FUNCTION stream.processing_time_now() IS 'inside a handler: the batch''s logged time; the same when the batch is run again';
