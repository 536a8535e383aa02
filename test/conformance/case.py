"""case: one conformance case. Its steps, in order, each a method step_<kind>; a step that finds a difference raises Failure.

Every step is {kind: argument, other keys…}; the README beside the cases lists them.
"""
import gzip
import json
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from decimal import Decimal

from pq import ConnectionLost, Session, SqlError, TimeLimit, literal

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
OWN_QUERY = "(%s, (SELECT id::text FROM stream.queries WHERE name = %s))"


class Failure(Exception):
    """The extension did not do what the case says; state: the SQLSTATE it gave instead."""

    state = None


def canonical(value):
    """The form values are compared in: text, numbers by value, None only equal to None."""
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, (dict, list)):
        return json.dumps(value, sort_keys=True)
    if value is None or not NUMBER.fullmatch(str(value)):
        return value
    number = Decimal(str(value))
    return str(int(number)) if number == number.to_integral_value() else str(number.normalize())


def compare(expected, got, ordered=False):
    expected, got = ([tuple(map(canonical, r if isinstance(r, list) else [r])) for r in rows] for rows in (expected, got))
    if expected == got if ordered else Counter(expected) == Counter(got):
        return
    missing, extra = Counter(expected) - Counter(got), Counter(got) - Counter(expected)
    text = ["expected %d row(s), got %d" % (len(expected), len(got))]
    for label, rows in (("missing", list(missing.elements())), ("unexpected", list(extra.elements()))):
        if rows:
            text.append(label + " " + " ".join("(%s)" % ", ".join("NULL" if v is None else v for v in r) for r in rows[:4])
                        + (" and %d more" % (len(rows) - 4) if len(rows) > 4 else ""))
    if ordered and not missing and not extra:
        text.append("order differs")
    raise Failure("; ".join(text))


def state_matches(wanted, state):
    """Alternatives with |, by class; class 42 and internal ones by the whole code."""
    return any(state == w or (state[:2] == w[:2] and w[:2] not in ("42", "XX", "58", "57")) for w in wanted.split("|"))


class Case:
    def __init__(self, spec, dbname, timeout, options=None):
        self.spec, self.dbname, self.options = spec, dbname, options or {}
        self.query = spec.get("query") or {}
        self.deadline = time.monotonic() + timeout
        self.where = "start"
        self.sessions, self.background = {}, {}
        self.tmp = None
        self.seen, self.counted, self.progress_seen = {}, {}, {}
        self.sessions[None] = self.connect()

    def run(self):
        for number, sql in enumerate(self.spec.get("setup", []), 1):
            self.where = "setup %d" % number
            self.exec(sql)
        if self.query:
            self.where = "create_query"
            self.create(self.query)
        checks = 0
        for number, step in enumerate(self.spec["steps"], 1):
            kinds = [k for k in ("expect_query", "expect_error", "background") if k in step] or \
                    [k for k in step if hasattr(self, "step_" + k)]
            if not kinds:
                raise Failure("step %d: nothing known in %s" % (number, sorted(step)))
            self.where = "step %d (%s)" % (number, kinds[0])
            getattr(self, "step_" + kinds[0])(step[kinds[0]], step)
            checks += kinds[0].startswith(("expect", "wait")) or "error" in step or "ran" in step
        if not checks:
            raise Failure("the case expects nothing")

    def close(self):
        try:
            session = Session(self.dbname, time.monotonic() + 5)
            session.run("SELECT stream.stop_query(name) FROM stream.queries WHERE status IN ('starting', 'running', 'restarting')")
            session.close()
        except (SqlError, ConnectionLost, TimeLimit):
            pass
        for session in list(self.sessions.values()) + list(self.background.values()):
            session.close()
        if self.tmp:
            shutil.rmtree(self.tmp, ignore_errors=True)

    # ---- plumbing ----

    def connect(self):
        return Session(self.dbname, self.deadline)

    def directory(self):
        if not self.tmp:
            self.tmp = tempfile.mkdtemp(prefix="stream_ext.")
            os.chmod(self.tmp, 0o777)
        return self.tmp

    def text(self, sql):
        return sql.replace("${tmp}", self.directory()) if "${tmp}" in sql else sql

    def exec(self, sql, session=None):
        if session not in self.sessions:
            self.sessions[session] = self.connect()
        return self.sessions[session].run(self.text(sql))

    def nap(self):
        if time.monotonic() > self.deadline:
            raise TimeLimit("time limit reached")
        time.sleep(0.02)

    def wait_gone(self, pids):
        while self.exec("SELECT FROM pg_stat_activity WHERE pid IN (%s)" % ", ".join(map(str, pids))):
            self.nap()

    def expect_error(self, wanted, message, action):
        """What action returns, or None when it failed as wanted."""
        try:
            result = action()
        except SqlError as e:
            if wanted is None:
                raise
            if not state_matches(wanted, e.state):
                raise Failure("expected SQLSTATE %s, got %s" % (wanted, e)) from e
            if message and not re.search(message, e.message + " " + e.detail, re.I | re.S):
                failure = Failure("expected a message like %r, got %s" % (message, e))
                failure.state = e.state
                raise failure from e
            return None
        if wanted is not None:
            raise Failure("expected error %s, but it succeeded" % wanted)
        return result

    def name(self, step, key="query"):
        return step.get(key) or self.query.get("name", "q")

    def target(self, step):
        found = re.match(r"\s*stream\.to_table\(\s*'([^']+)'", self.query.get("sink", "stream.to_table('out')"))
        if not step.get("target") and not found:
            raise Failure("the step needs a target")
        return step.get("target") or found.group(1)

    def columns(self, target):
        rows = self.exec("SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = %s::regclass "
                         "AND attnum > 0 AND NOT attisdropped AND attname <> 'batch_id'" % literal(target))
        if rows[0][0] is None:
            raise Failure("target %s has no columns" % target)
        return rows[0][0]

    def create(self, query):
        arguments = [literal(query.get("name", "q")), "$case$%s$case$" % query["sql"], query.get("sink", "stream.to_table('out')"),
                     "output_mode => " + literal(query["output_mode"])]
        if query.get("trigger"):
            arguments.append("trigger => " + query["trigger"])
        options = {**self.options, **query.get("options", {})}
        if options:
            arguments.append("options => " + literal(json.dumps(options)) + "::jsonb")
        arguments.append("start => " + str(bool(query.get("start"))))
        self.exec("SELECT stream.create_query(%s)" % ", ".join(arguments))

    # ---- steps that do ----

    def step_sql(self, sql, step):
        self.expect_error(step.get("error"), step.get("message"), lambda: self.exec(sql, step.get("session")))

    def step_create_query(self, query, step):
        self.create(query)

    def step_process(self, query, step):
        self.step_sql("CALL stream.process_all_available(%s)" % literal(query), step)

    def step_run_batch(self, query, step):
        for turn in range(step.get("times", 1)):
            rows = self.expect_error(step.get("error"), step.get("message"),
                                     lambda: self.exec("CALL stream.run_batch(%s, NULL)" % literal(query), step.get("session")))
            wanted = step.get("ran")
            if rows is None or wanted is None:
                continue
            wanted = wanted[turn] if isinstance(wanted, list) else wanted
            if rows != [["t" if wanted else "f"]]:
                raise Failure("trigger %d: expected ran = %s, got %s" % (turn + 1, wanted, rows))

    def step_alter(self, changes, step):
        arguments = [literal(self.name(step, "name"))]
        for key, value in changes.items():
            form = {"query": "$case$%s$case$", "options": "%s::jsonb", "sink": "%s", "trigger": "%s"}[key]
            arguments.append("%s => %s" % (key, form % (literal(json.dumps(value)) if key == "options" else value)))
        self.step_sql("SELECT stream.alter_query(%s)" % ", ".join(arguments), step)

    def step_new_session(self, _, step):
        old = self.sessions[None]
        old.close()
        self.sessions[None] = self.connect()
        self.wait_gone([old.pid])

    def step_close_session(self, session, step):
        old = self.sessions.pop(session)
        old.close()
        self.wait_gone([old.pid])

    def step_background(self, label, step):
        self.background[label] = self.connect()
        self.background[label].send(self.text(step["sql"]))

    def step_join(self, label, step):
        session = self.background.pop(label)
        try:
            self.expect_error(step.get("error"), step.get("message"), session.finish)
        finally:
            session.close()

    def step_terminate(self, label, step):
        session = self.background.pop(label)
        self.exec("SELECT pg_terminate_backend(%d)" % session.pid)
        self.wait_gone([session.pid])
        session.close()

    def step_crash_at(self, label, step):
        """A lock is held, a batch runs into it and is killed there; then the lock goes and a new session comes."""
        holder, victim = self.connect(), self.connect()
        holder.run("BEGIN")
        holder.run(self.text(step["hold"]))
        victim.send(self.text(step.get("on") or "CALL stream.run_batch(%s, NULL)" % literal(self.name(step))))
        end = time.monotonic() + 10
        while True:
            stuck = self.exec("SELECT DISTINCT l.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted "
                              "AND %d = ANY (pg_blocking_pids(l.pid)) AND a.datname = current_database()" % holder.pid)
            if stuck:
                break
            if victim.ready(0) or time.monotonic() > end:
                raise Failure("the batch never reached the lock (%s)" % label)
            self.nap()
        pids = sorted({int(pid) for pid, in stuck} | {victim.pid})
        for pid in pids:
            self.exec("SELECT pg_terminate_backend(%d)" % pid)
        self.wait_gone(pids)
        victim.close()
        holder.close()
        self.step_new_session(True, step)

    def step_sleep_s(self, seconds, step):
        time.sleep(min(seconds, max(0, self.deadline - time.monotonic())))

    def step_file(self, name, step):
        path = os.path.join(self.directory(), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        hidden = os.path.join(os.path.dirname(path), "." + os.path.basename(path) + ".tmp")
        content = step["content"].encode()
        with open(hidden, "wb") as file:
            file.write(gzip.compress(content) if step.get("gzip") else content)
        os.chmod(hidden, 0o666)
        if "mtime" in step:
            os.utime(hidden, (step["mtime"], step["mtime"]))
        os.rename(hidden, path)

    def step_remove_file(self, name, step):
        os.unlink(os.path.join(self.directory(), name))

    # ---- steps that expect ----

    def step_expect_error(self, wanted, step):
        self.expect_error(wanted, step.get("message"), lambda: self.exec(step["on"], step.get("session")))

    def step_expect_new(self, rows, step):
        """Rows of batches not looked at yet; in append mode the earlier ones must still be there, in complete mode all count."""
        target, last = self.target(step), self.seen.get(self.target(step), -1)
        mode = None if step.get("target") else self.query.get("output_mode")
        got = self.exec("SELECT batch_id, %s FROM %s" % (step.get("columns") or self.columns(target), target))
        if any(r[0] is None for r in got):
            raise Failure("a row of %s has no batch_id" % target)
        if mode == "append":
            old = sum(int(r[0]) <= last for r in got)
            if old != self.counted.get(target, 0):
                raise Failure("batches up to %d had %d row(s), now they have %d" % (last, self.counted.get(target, 0), old))
            self.counted[target] = len(got)
        if mode != "complete":
            got = [r for r in got if int(r[0]) > last]
        self.seen[target] = max([last] + [int(r[0]) for r in got])
        compare(rows, [r[1:] for r in got], step.get("ordered", False))

    def step_expect_all(self, rows, step):
        target = self.target(step)
        columns = step.get("columns") or self.columns(target)
        if step.get("ordered"):
            compare(rows, self.exec("SELECT %s FROM %s" % (columns, target)), True)
            return
        got = self.exec("SELECT batch_id, %s FROM %s" % (columns, target))
        ids = [int(r[0]) for r in got if r[0] is not None]
        if ids:
            self.seen[target] = max(ids + [self.seen.get(target, -1)])
            self.counted[target] = len(got)
        compare(rows, [r[1:] for r in got])

    def step_expect_batch(self, query, step):
        """The target holds what the query gives when run by hand."""
        target = self.target(step)
        compare(self.exec(query if isinstance(query, str) else self.query["sql"]),
                self.exec("SELECT %s FROM %s" % (self.columns(target), target)))

    def step_expect_query(self, sql, step):
        compare(step["rows"], self.exec(sql), step.get("ordered", False))

    def step_expect_watermark(self, wanted, step):
        log, column = ("offset_log", "watermark") if step.get("at") == "last_batch" else ("commit_log", "next_watermark")
        rows = self.exec("SELECT extract(epoch FROM l.%s) FROM stream.%s l JOIN stream.queries q ON q.id = l.query_id "
                         "WHERE q.name = %s ORDER BY l.batch_id DESC LIMIT 1" % (column, log, literal(self.name(step))))
        if not rows:
            raise Failure("no batch has been logged")
        got, wanted = canonical(rows[0][0]), canonical(wanted)
        if wanted == "0" and (got is None or got.startswith("-")):
            got = "0"
        if got != wanted:
            raise Failure("expected watermark %s, got %s" % (wanted, got))

    def step_expect_state_rows(self, wanted, step):
        query = self.name(step)
        own = OWN_QUERY % (literal(query), literal(query))
        wanted = wanted if isinstance(wanted, dict) else {"total": wanted}
        fields = {"total": None, "updated": "numRowsUpdated", "removed": "numRowsRemoved", "dropped": "numRowsDroppedByWatermark"}
        since, wrong = self.progress_seen.get(query, -1), []
        for counter, value in wanted.items():
            for operator, number in value.items() if isinstance(value, dict) else [(None, value)]:
                named = "" if operator is None else " AND o->>'operatorName' = " + literal(operator)
                from_progress = "FROM stream.progress p, jsonb_array_elements(p.progress->'stateOperators') o WHERE p.query::text IN " + own + named
                if counter != "total":
                    rows = self.exec("SELECT sum((o->>'%s')::numeric) %s AND p.batch_id > %d" % (fields[counter], from_progress, since))
                elif operator is None:
                    rows = self.exec("SELECT state_rows FROM stream.queries WHERE name = %s" % literal(query))
                else:
                    rows = self.exec("SELECT o->>'numRowsTotal' %s ORDER BY p.batch_id DESC LIMIT 1" % from_progress)
                got = sum((Decimal(r[0]) for r in rows if r[0] is not None), Decimal(0))
                at_least = isinstance(number, str) and number.startswith(">=")
                if (counter == "total" and not rows) or \
                        (got < Decimal(number[2:]) if at_least else got != Decimal(str(number))):
                    wrong.append("%s%s: expected %s, got %s" % (counter, " of " + operator if operator else "", number,
                                                                got if rows else "nothing"))
        newest = self.exec("SELECT max(p.batch_id) FROM stream.progress p WHERE p.query::text IN " + own)[0][0]
        if newest is not None:
            self.progress_seen[query] = int(newest)
        if wrong:
            raise Failure("; ".join(wrong))

    def step_wait_until(self, sql, step):
        end, wanted, rows = time.monotonic() + step.get("timeout_s", 10), step["equals"], []
        wanted = wanted if isinstance(wanted, list) else [wanted]
        while True:
            rows = self.exec(sql)
            if len(rows) == 1 and list(map(canonical, rows[0])) == list(map(canonical, wanted)):
                return
            if time.monotonic() > end:
                raise Failure("waited for %s, still %s" % (wanted, rows))
            self.nap()
