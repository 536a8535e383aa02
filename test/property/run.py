#!/usr/bin/env python3
"""stream = batch: the final answer of a streaming query equals the plain SELECT over all rows that were not late.

Random rows, random batch boundaries, random restarts, random queries from a grammar. The seed is printed; --seed and --only repeat a case.

  run.py [--count N] [--seed N] [--only CASE] [--dbname NAME] [--jobs N] [--query-options JSON] [--verbose]

Connection by the usual PG* environment variables; a database of its own is made per job and dropped at the end.
"""
import argparse
import json
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "conformance"))
from pq import ConnectionLost, Session, SqlError, TimeLimit     # noqa: E402

import grammar                                                  # noqa: E402

TABLES = ("a", "b")
PROVIDERS = ("memory", "table")
SENTINEL = "2031-01-01 00:00:00+00"


def value_rows(rng, first_id, count, clock, disorder):
    """Rows (id, k, v, w, ts) as SQL VALUES; event time runs on from clock, each row up to `disorder` seconds back."""
    rows = []
    for i in range(count):
        at = clock + rng.randrange(0, 7) * i - rng.randrange(0, disorder + 1)
        k = rng.choice(["'x'", "'y'", "'z'", "'x '", "''", "NULL"])
        v = rng.choice([str(rng.randrange(-3, 12)), str(rng.randrange(0, 4)), "NULL"])
        w = rng.choice(["1.0", "1.00", "-0.5", "2", "NULL", "0", "1e3"])
        ts = "to_timestamp(%d)" % at if rng.random() > 0.02 else "NULL"
        rows.append("(%d, %s::text, %s::int, %s::numeric, %s::timestamptz)" % (first_id + i, k, v, w, ts))
    return rows


class Case:
    def __init__(self, seed, number, verbose, options):
        self.options = options
        self.rng = random.Random("%d/%d" % (seed, number))
        self.number, self.verbose = number, verbose
        self.query = grammar.generate(self.rng)
        self.provider = self.rng.choice(PROVIDERS)
        self.log = []

    def sql(self, session, text):
        self.log.append(text)
        return session.run(text)

    def option_set(self):
        query = {**json.loads(self.query.options), **({"max_rows_per_batch": self.query.limit} if self.query.limit else {})}
        return json.dumps({"state_provider": self.provider, **query, **self.options})

    def setup(self, session):
        delay = self.query.delay
        self.sql(session, "DROP SCHEMA IF EXISTS p CASCADE; CREATE SCHEMA p; SET search_path = p, public")
        for t in TABLES:
            self.sql(session, "CREATE TABLE %s_t (id int, k text, v int, w numeric, ts timestamptz, late boolean, sentinel boolean DEFAULT false, mark timestamptz)" % t)
            self.sql(session, "SELECT stream.create_source('%s', 'table', options => '{\"table\": \"%s_t\"}', event_time => 'ts', "
                              "watermark_delay => '%s')" % (t, t, delay))
        self.sql(session, "CREATE TABLE dim (v int, label text); INSERT INTO dim SELECT g % 5, 'label ' || g FROM generate_series(0, 6) g")
        self.sql(session, "SELECT stream.create_query('q', $q$%s$q$, stream.to_table('out'), output_mode => '%s', options => '%s', start => false)"
                 % (self.query.text(), self.query.mode, self.option_set()))

    def feed(self, session, reconnect):
        rng, ids, clock = self.rng, {t: 1 for t in TABLES}, 1_700_000_000
        unread = dict(ids)                  # first id no batch has read yet: what came before it has moved the watermark
        for turn in range(rng.randrange(1, 6)):
            for t in TABLES:
                count = rng.choice([0, 1, 2, 5, 20, 60] if turn > 0 else [1, 2, 5, 20])     # without a row there is no batch, and no result
                if count:
                    rows = value_rows(rng, ids[t], count, clock, self.query.disorder)
                    self.sql(session, "INSERT INTO %s_t (id, k, v, w, ts, late, mark) SELECT i, k, v, w, ts, coalesce(%s <= mark, %s), mark "
                                      "FROM (VALUES %s) AS r(i, k, v, w, ts), (SELECT %s AS mark) m"
                             % (t, self.query.late_expression("ts"), "ts IS NULL" if self.query.drops_null_time else "false", ", ".join(rows),
                                self.mark(unread)))
                    ids[t] += count
            clock += rng.randrange(0, 200)
            if rng.random() < 0.7:
                self.process(session)
                unread = dict(ids)
            if rng.random() < 0.3:
                session = reconnect()
                self.restart(session)
        self.process(session)
        if self.query.flush:
            for t in TABLES:
                self.sql(session, "INSERT INTO %s_t VALUES (-1, '~%s', NULL, NULL, '%s', false, true, NULL)" % (t, t, SENTINEL))
            self.process(session)
        return session

    def mark(self, unread):
        """The watermark once all rows before `unread` have been read: the least of the sources', none while one has had no row."""
        marks = ["(SELECT max(ts) - interval '%s' FROM %s_t WHERE id < %d)" % (self.query.delay, t, unread[t]) for t in self.query.sources()]
        return marks[0] if len(marks) == 1 else "CASE WHEN num_nulls(%s) = 0 THEN least(%s) END" % (", ".join(marks), ", ".join(marks))

    def restart(self, session):
        """Another process goes on from the saved state; sometimes state moves to the other provider."""
        self.sql(session, "SET search_path = p, public")
        if "state_provider" not in self.options and self.rng.random() < 0.3:
            self.provider = self.rng.choice(PROVIDERS)
            self.sql(session, "SELECT stream.alter_query('q', options => '{\"state_provider\": \"%s\"}')" % self.provider)

    def process(self, session):
        self.sql(session, "CALL stream.process_all_available('q')")

    def difference(self, session):
        columns = ", ".join(self.query.columns)
        reference = self.query.reference()
        got = "SELECT %s FROM out%s" % (columns, " WHERE " + self.query.counted if self.query.counted else "")
        rows = self.sql(session, "WITH want AS (%s), got AS (%s) SELECT 'missing', w::text FROM (TABLE want EXCEPT ALL TABLE got) w "
                                 "UNION ALL SELECT 'unexpected', g::text FROM (TABLE got EXCEPT ALL TABLE want) g LIMIT 8" % (reference, got))
        return "; ".join("%s %s" % tuple(r) for r in rows)

    def run(self, connect):
        holder = [connect()]

        def reconnect():
            holder[0].close()
            holder[0] = connect()
            return holder[0]
        try:
            try:
                self.setup(holder[0])
            except SqlError as e:
                if e.state == "0A000" and self.query.may_be_refused:
                    self.refusal = str(e)
                    return "refused"
                raise
            self.feed(holder[0], reconnect)
            return self.difference(holder[0])
        except (SqlError, ConnectionLost, TimeLimit) as e:
            return "error: %s" % e
        finally:
            holder[0].close()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--count", type=int, default=100)
    ap.add_argument("--seed", type=int, default=int(time.time()))
    ap.add_argument("--only", type=int)
    ap.add_argument("--dbname", default="property")
    ap.add_argument("--jobs", type=int, default=2)
    ap.add_argument("--query-options", type=json.loads, default={}, metavar="JSON", help="options added to those of every query")
    ap.add_argument("--verbose", action="store_true")
    args = ap.parse_args()
    print("seed %d" % args.seed)
    numbers = [args.only] if args.only is not None else range(args.count)
    jobs = min(args.jobs, len(numbers))

    def connect(dbname):
        return Session(dbname, time.monotonic() + 120)
    admin = connect(os.environ.get("PGDATABASE", "postgres"))
    for j in range(jobs):
        admin.run("DROP DATABASE IF EXISTS %s_%d" % (args.dbname, j))
        admin.run("CREATE DATABASE %s_%d TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'" % (args.dbname, j))
        one = connect("%s_%d" % (args.dbname, j))
        one.run("CREATE EXTENSION stream_ext")
        one.close()
    admin.close()

    def drop_query(dbname):
        one = connect(dbname)
        one.run("SELECT stream.drop_query('q', true)")
        one.close()

    def job(j):
        dbname, results = "%s_%d" % (args.dbname, j), []
        for number in numbers[j::jobs]:
            case = Case(args.seed, number, args.verbose, args.query_options)
            outcome = case.run(lambda: connect(dbname))
            results.append((number, case, outcome))
            drop_query(dbname)
            if args.verbose or (outcome and outcome != "refused"):
                print("%s case %d (seed %d): %s\n   %s, %s" % ("FAIL" if outcome and outcome != "refused" else "ok", number, args.seed, outcome,
                                                              case.query.text(), case.query.mode), flush=True)
                if outcome and outcome != "refused" and args.only is not None:
                    print("\n".join(line + ";" for line in case.log))
        return results
    with ThreadPoolExecutor(jobs) as pool:
        results = [r for rs in pool.map(job, range(jobs)) for r in rs]
    admin = connect(os.environ.get("PGDATABASE", "postgres"))       # the first one's time may be over
    for j in range(jobs):
        admin.run("DROP DATABASE IF EXISTS %s_%d WITH (FORCE)" % (args.dbname, j))
    admin.close()
    if args.verbose:
        print("\n".join("refused %d: %s" % (r[0], r[1].refusal) for r in results if r[2] == "refused"))
    refused = sum(1 for r in results if r[2] == "refused")
    failed = sum(1 for r in results if r[2] and r[2] != "refused")
    kinds = {}
    for _, case, outcome in results:
        if outcome != "refused":
            kinds[case.query.kind] = kinds.get(case.query.kind, 0) + 1
    print("kinds run: " + ", ".join("%s %d" % k for k in sorted(kinds.items())) + "; refused as unsupported: %d" % refused)
    print("%d passed, %d failed" % (len(results) - failed - refused, failed))
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
