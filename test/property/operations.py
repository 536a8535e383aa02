#!/usr/bin/env python3
"""Whatever is done to a query, and in whatever order, its target is the plain SELECT over all rows in the end.

Random operations on ten queries over one source: rows come, batches run here and in workers, queries are started, stopped, killed, altered, rewound, reset,
state moves between its providers, the table is rewritten. Nothing is ever late here; that is the other script's part. The seed is printed; --seed repeats a run.

  operations.py [--count N] [--seed N] [--steps N] [--dbname NAME]

Connection by the usual PG* environment variables; a database of its own is made per run and dropped at the end.
"""
import argparse
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "conformance"))
from pq import ConnectionLost, Session, SqlError, TimeLimit     # noqa: E402

SETUP = """
CREATE EXTENSION stream_ext;
CREATE TABLE b (id int PRIMARY KEY, k text, v int, ts timestamptz);
SELECT stream.create_source('s', 'table', options => '{"table": "b"}', event_time => 'ts', watermark_delay => '1000 days');
CREATE FUNCTION counted(key text, rows s[]) RETURNS TABLE (k text, n bigint) LANGUAGE plpgsql AS $$
BEGIN
    k := key;
    n := coalesce(stream.state_get('c', NULL::bigint), 0) + cardinality(rows);
    PERFORM stream.state_update('c', n);
    RETURN NEXT;
END $$;
SELECT stream.create_processor('counted', 'counted(text,s[])', state => '{"c": {"kind": "value", "type": "bigint"}}');
"""

SESSIONS = """SELECT k, tstzrange(min(ts), max(ts) + interval '10 minutes') AS w, count(*) AS n FROM (
    SELECT *, count(*) FILTER (WHERE opens) OVER (PARTITION BY k ORDER BY ts, id) AS session FROM (
        SELECT *, coalesce(ts - lag(ts) OVER (PARTITION BY k ORDER BY ts, id) > interval '10 minutes', true) AS opens FROM b) x) y GROUP BY k, session"""

# name: query, output mode, options of the table sink, what its target is in the end (none: the query itself)
QUERIES = {
    "plain": ("SELECT id, k FROM s WHERE v > 2", "append", "{}", None),
    "groups": ("SELECT k, count(*) AS n, sum(v) AS t, array_agg(DISTINCT v ORDER BY v) AS d FROM s GROUP BY k", "update", "{}", None),
    "having": ("SELECT v, count(*) AS n FROM s GROUP BY v HAVING count(*) % 3 > 0", "complete", "{}", None),
    "windows": ("SELECT stream.tumble(ts, '1 hour') AS w, k, max(v) AS m FROM s GROUP BY 1, 2", "update", "{}", None),
    "sessions": ("SELECT k, stream.session(ts, '10 minutes') AS w, count(*) AS n FROM s GROUP BY 1, 2", "update", "{}", SESSIONS),
    "firsts": ("SELECT DISTINCT k, v FROM s", "append", "{}", None),
    "best": ("SELECT k, id, v FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS r FROM s) x WHERE r <= 2", "update", "{}", None),
    "pairs": ("SELECT x.id, y.id AS other FROM s x JOIN s y ON x.k = y.k AND x.v = y.v AND x.id < y.id", "append", "{}", None),
    "pair_groups": ("SELECT x.v, count(*) AS n FROM s x JOIN s y ON x.k = y.k AND x.v = y.v GROUP BY 1", "update", "{}", None),
    "custom": ("SELECT t.k, t.n FROM s, LATERAL stream.transform_with_state('counted', s.k, s) AS t(k text, n bigint)", "update", '{"key": "k"}',
               "SELECT k, count(*) AS n FROM b GROUP BY k"),
}
EPOCHS = ("plain", "groups", "windows", "custom")               # update mode or none, operators that take a batch in pieces
KEYS = ["'a'", "'b'", "'c'", "NULL"] + ["'d%d'" % i for i in range(20)]
TIMES = 1_700_000_000


class Run:
    def __init__(self, dbname, seed, steps):
        self.dbname, self.rng, self.steps = dbname, random.Random(seed), steps
        self.running, self.ids, self.done = set(), 0, []
        self.session = None

    def connect(self):
        session = Session(self.dbname, time.monotonic() + 300)
        session.run("SET client_min_messages = error")
        return session

    def sql(self, text):
        return self.session.run(text)

    def alter(self, name, options):
        self.sql("SELECT stream.alter_query('%s', options => '%s')" % (name, options))

    # ---- operations: each on a query; `idle` ones on stopped queries only ----

    def rows(self, name):
        values = []
        for _ in range(self.rng.choice([1, 1, 2, 5, 30, 200])):
            self.ids += 1
            values.append("(%d, %s, %d, to_timestamp(%d))" % (self.ids, self.rng.choice(KEYS), self.rng.randrange(8), TIMES + self.rng.randrange(200_000)))
        self.sql("INSERT INTO b VALUES " + ", ".join(values))

    def process(self, name):
        self.sql("CALL stream.process_all_available('%s')" % name)

    def start(self, name):
        self.sql("SELECT stream.start_query('%s')" % name)
        self.running.add(name)

    def stop(self, name):
        self.sql("SELECT stream.stop_query('%s')" % name)
        self.running.discard(name)

    def kill(self, name):
        self.sql("SELECT pg_terminate_backend(pid) FROM stream.queries WHERE name = '%s'" % name)

    def reconnect(self, name):
        self.session.close()
        self.session = self.connect()

    def rewrite(self, name):
        self.sql(self.rng.choice(["VACUUM FULL b", "CLUSTER b USING b_pkey", "VACUUM b", "ANALYZE b"]))

    def idle_batch(self, name):
        self.sql("CALL stream.run_batch('%s', NULL)" % name)

    def idle_provider(self, name):
        self.alter(name, '{"state_provider": "%s"}' % self.rng.choice(["memory", "table"]))

    def idle_limit(self, name):
        self.alter(name, '{"max_rows_per_batch": %s, "min_batches_to_retain": %d}' % (self.rng.choice(["1", "3", "50", "null"]), self.rng.choice([5, 20, 100])))

    def idle_trigger(self, name):
        if name in EPOCHS and name != "plain":
            self.sql("SELECT stream.alter_query('%s', trigger => stream.%s)"
                     % (name, self.rng.choice(["real_time('300 ms')", "processing_time('0')", "processing_time('100 ms')"])))

    def idle_rewind(self, name):
        last = self.sql("SELECT max(batch_id) FROM stream.commit_log WHERE query_id = (SELECT id FROM stream.queries WHERE name = '%s')" % name)[0][0]
        if last and int(last) > 0:
            batch = self.rng.randrange(max(0, int(last) - 4), int(last) + 1)
            self.sql("DELETE FROM %s_out WHERE batch_id > %d; SELECT stream.rewind_query('%s', %d)" % (name, batch, name, batch))

    def idle_reset(self, name):
        self.sql("SELECT stream.reset_query('%s')" % name)
        self.sql("TRUNCATE %s_out" % name)

    def idle_cut_short(self, name):
        """A session that runs batches is ended in the middle."""
        other = self.connect()

        def run():
            try:
                other.run("CALL stream.process_all_available('%s')" % name)
            except (SqlError, ConnectionLost):
                pass
        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(self.rng.random() * 0.03)
        self.sql("SELECT pg_terminate_backend(%d, 10000)" % other.pid)
        thread.join()
        other.close()

    def step(self):
        weights = {"rows": 8, "idle_batch": 6, "process": 4, "stop": 3, "start": 2, "idle_rewind": 2, "idle_cut_short": 2}
        names = [n for n in dir(self) if n in ("rows", "process", "start", "stop", "kill", "reconnect", "rewrite") or n.startswith("idle_")]
        operation, name = self.rng.choices(names, [weights.get(n, 1) for n in names])[0], self.rng.choice(list(QUERIES))
        if operation.startswith("idle_") and name in self.running:
            return
        self.done.append((operation, name))
        try:
            getattr(self, operation)(name)
        except SqlError as e:
            if not (operation == "idle_rewind" and e.state == "55000"):     # gone from the logs meanwhile
                raise

    # ---- the end ----

    def difference(self, name):
        query, _, _, reference = QUERIES[name]
        if name in self.running:
            self.stop(name)
        self.sql("SELECT stream.alter_query('%s', trigger => stream.processing_time('0'))" % name)
        self.process(name)
        columns = self.sql("SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute "
                           "WHERE attrelid = '%s_out'::regclass AND attnum > 0 AND attname <> 'batch_id'" % name)[0][0]
        rows = self.sql("WITH want AS (%s), got AS (SELECT %s FROM %s_out) SELECT 'missing', w::text FROM (TABLE want EXCEPT ALL TABLE got) w "
                        "UNION ALL SELECT 'unexpected', g::text FROM (TABLE got EXCEPT ALL TABLE want) g LIMIT 8" % (reference or query, columns, name))
        return ["%s: %s %s" % (name, *row) for row in rows]

    def run(self):
        self.session = self.connect()
        self.sql(SETUP)
        for name, (query, mode, options, _) in QUERIES.items():
            self.sql("SELECT stream.create_query('%s', $q$%s$q$, stream.to_table('%s_out', '%s'), '%s', start => false)" % (name, query, name, options, mode))
        self.rows(None)         # without a row there is no batch, and no result
        for _ in range(self.steps):
            self.step()
        return [line for name in QUERIES for line in self.difference(name)]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--count", type=int, default=4)
    ap.add_argument("--seed", type=int, default=int(time.time()))
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--dbname", default="operations")
    args = ap.parse_args()
    print("seed %d" % args.seed)
    failed = 0
    for seed in range(args.seed, args.seed + args.count):
        admin = Session(os.environ.get("PGDATABASE", "postgres"), time.monotonic() + 600)
        admin.run("DROP DATABASE IF EXISTS %s WITH (FORCE)" % args.dbname)
        admin.run("CREATE DATABASE %s TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'" % args.dbname)
        run = Run(args.dbname, seed, args.steps)
        try:
            wrong = run.run()
        except (SqlError, ConnectionLost, TimeLimit) as e:
            wrong = ["error: %s" % e]
        if run.session:
            run.session.close()
        if wrong:
            failed += 1
            print("FAIL seed %d\n   %s\n   %s" % (seed, "\n   ".join(wrong), ", ".join("%s %s" % o for o in run.done)), flush=True)
        admin.run("DROP DATABASE IF EXISTS %s WITH (FORCE)" % args.dbname)
        admin.close()
    print("%d passed, %d failed" % (args.count - failed, failed))
    return 1 if failed or not args.count else 0


if __name__ == "__main__":
    sys.exit(main())
