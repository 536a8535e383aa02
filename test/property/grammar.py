"""grammar: random streaming queries, each with the plain SELECT its final answer must equal.

Text templates name the sources {A} and {B}. In the streaming query they are the sources; in the reference they are subqueries over the base tables
that leave out what the stream must not count: late rows where the query drops them, the sentinel rows that close the last windows.
"""

WINDOWS = {         # key expression → when it closes
    "stream.tumble({ts}, '10 seconds')": "upper(stream.tumble({ts}, '10 seconds'))",
    "stream.tumble({ts}, '1 minute', to_timestamp(7))": "upper(stream.tumble({ts}, '1 minute', to_timestamp(7)))",
    "date_trunc('minute', {ts})": "date_trunc('minute', {ts}) + interval '1 minute'",
    "date_bin('15 seconds', {ts}, 'epoch')": "date_bin('15 seconds', {ts}, 'epoch') + interval '15 seconds'",
}
HOP = "stream.hop({ts}, '20 seconds', '5 seconds')"
PLAIN_KEYS = ["k", "v % 3", "v", "w", "coalesce(k, '-')", "v IS NULL", "lower(k) || '!'"]
AGGREGATES = ["count(*)", "count(v)", "sum(v)", "avg(v)", "min(k)", "max(w)", "sum(w)", "bool_or(v > 3)", "count(*) FILTER (WHERE v > 1)",
              "sum(v) * 2 + count(*)", "max(v) - min(v)", "var_pop(v)", "stddev(w)", "count(DISTINCT v)", "string_agg(k, ',' ORDER BY id)",
              "array_agg(DISTINCT v ORDER BY v)", "coalesce(sum(v), -1)", "bit_or(v)", "max(ts)", "min(id)", "array_agg(v ORDER BY id)",
              "sum(DISTINCT v)", "json_agg(v ORDER BY id)::text", "avg(w) FILTER (WHERE k = 'x')"]
FILTERS = ["v > 2", "k IS NOT NULL", "k <> 'x' OR v = 1", "v BETWEEN 0 AND 5", "w IS DISTINCT FROM 1", "id % 3 <> 0"]


class Query:
    kind = "?"
    mode = "append"
    delay = "1 hour"            # so long that no row is late, unless the query is about lateness
    disorder = 40               # seconds
    options = "{}"
    flush = False               # sentinel rows close what is open
    drops_null_time = False     # rows without event time do not count
    may_be_refused = True
    late = None                 # expression of ts: when the row's group closes
    sentinel_counts = False
    counted = ""                # which rows of the target are compared: sentinels may come out of an outer join at once
    template = ""
    columns = ()

    def text(self):
        return self.template.replace("{A}", "a").replace("{B}", "b")

    def late_expression(self, ts):
        return self.late.replace("{ts}", ts) if self.late else "NULL::timestamptz"

    def reference(self):
        where = [] if self.sentinel_counts else ["NOT sentinel"]
        if self.late or self.drops_null_time:
            where.append("NOT late")
        rows = "(SELECT id, k, v, w, ts FROM %s_t" + (" WHERE " + " AND ".join(where) if where else "") + ")"
        return self.reference_template().replace("{A}", rows % "a").replace("{B}", rows % "b")

    def reference_template(self):
        return "SELECT %s FROM (%s) stream_result" % (", ".join(self.columns), self.template)


def where(rng, chance=0.5):
    return " WHERE " + rng.choice(FILTERS) if rng.random() < chance else ""


def stateless(rng):
    q = Query()
    q.kind = "stateless"
    q.mode = rng.choice(["append", "update"])
    shape = rng.randrange(6)
    if shape == 0:
        q.template = "SELECT id AS c1, upper(k) AS c2, v + 1 AS c3, w AS c4 FROM {A} s" + where(rng)
    elif shape == 1:
        q.template = "SELECT s.id AS c1, s.k AS c2, d.label AS c3, s.v AS c4 FROM {A} s %s dim d ON d.v = s.v" % rng.choice(["JOIN", "LEFT JOIN"])
    elif shape == 2:
        q.template = "SELECT id AS c1, k AS c2, v AS c3, ts AS c4 FROM {A} s%s UNION ALL SELECT -id, k, v * 2, ts FROM {B} s%s" % (where(rng), where(rng))
    elif shape == 3:
        q.template = "SELECT id AS c1, k AS c2, v AS c3, w AS c4 FROM {A} s WHERE %s (SELECT FROM dim d WHERE d.v = s.v)" % rng.choice(["EXISTS", "NOT EXISTS"])
    elif shape == 4:
        q.template = ("WITH base AS (SELECT id, k, v, w, CASE WHEN v > 3 THEN 'big' ELSE 'small' END AS size FROM {A} s%s) "
                      "SELECT id AS c1, size AS c2, v AS c3, w AS c4 FROM base b WHERE size = 'big' OR v IS NULL" % where(rng))
    else:
        q.template = ("SELECT s.id AS c1, s.k AS c2, e AS c3, n AS c4 FROM {A} s, LATERAL generate_series(1, s.v) e, "
                      "LATERAL (SELECT count(*) AS n FROM dim d WHERE d.v <= s.v) x" + where(rng))
    q.columns = ("c1", "c2", "c3", "c4")
    return q


def aggregate_list(rng):
    picked = rng.sample(AGGREGATES, rng.randrange(1, 5))
    return ["%s AS a%d" % (e, i) for i, e in enumerate(picked)], ["a%d" % i for i in range(len(picked))]


def aggregate(rng):
    q = Query()
    q.kind = "aggregate"
    q.mode = rng.choice(["append", "update", "update", "complete", "complete"])
    keys = rng.sample(PLAIN_KEYS, rng.choice([0, 1, 1, 2]))
    window = None
    if q.mode == "append" or rng.random() < 0.5:
        window = rng.choice(list(WINDOWS) + [HOP])
        keys.append(window.replace("{ts}", "ts"))
    if window and window != HOP and q.mode in ("append", "update") and rng.random() < 0.5:
        q.kind, q.delay, q.late = "aggregate, late rows", "20 seconds", WINDOWS[window]
    if window and q.mode != "complete":
        q.drops_null_time = True
    q.flush = q.mode == "append"
    if q.mode == "update" and not keys:
        q.mode = "complete"
    aggregates, names = aggregate_list(rng)
    having = rng.choice([" HAVING count(*) > 1", " HAVING count(v) < 4"]) if keys and rng.random() < 0.3 else ""
    group = " GROUP BY " + ", ".join(str(i + 1) for i in range(len(keys))) if keys else ""
    q.template = "SELECT %s FROM {A} s%s%s%s" % (", ".join(["%s AS g%d" % (e, i) for i, e in enumerate(keys)] + aggregates), where(rng, 0.3), group, having)
    q.columns = tuple(["g%d" % i for i in range(len(keys))] + names)
    return q


def aggregate_of_union(rng):
    q = aggregate(rng)
    if q.late:
        return aggregate_of_union(rng)
    q.kind = "aggregate of union"
    q.template = q.template.replace("FROM {A} s", "FROM (SELECT id, k, v, w, ts FROM {A} x UNION ALL SELECT id + 100000, k, v, w, ts FROM {B} y%s) s" % where(rng, 0.3))
    return q


def aggregate_over_join_with_table(rng):
    q = aggregate(rng)
    q.kind += ", static join"
    q.template = q.template.replace("FROM {A} s", "FROM (SELECT s.id, d.label AS k, s.v, s.w, s.ts FROM {A} s LEFT JOIN (SELECT v, min(label) AS label FROM dim GROUP BY v) d ON d.v = s.v) s")
    return q


def dedup(rng):
    q = Query()
    q.kind = "dedup"
    q.mode = rng.choice(["append", "update"])
    q.sentinel_counts = True
    q.drops_null_time = True
    if rng.random() < 0.5:
        q.template = "SELECT DISTINCT %s FROM {A} s%s" % ("k AS c1, v AS c2, w AS c3", where(rng))
        q.columns = ("c1", "c2", "c3")
        return q
    keys = rng.choice(["k", "v", "k, v", "w", "ts", "k, ts"])
    q.template = "SELECT DISTINCT ON (%s) id AS c1, k AS c2, v AS c3, w AS c4 FROM {A} s%s" % (keys, where(rng))
    q.columns = ("c1", "c2", "c3", "c4")
    q.reference_template = lambda: q.template + " ORDER BY %s, id" % keys
    return q


def dedup_then_aggregate(rng):
    q = aggregate(rng)
    if q.late:
        return dedup_then_aggregate(rng)
    q.kind = "dedup → aggregate"
    q.drops_null_time = q.mode != "complete"
    keys = rng.choice(["k, ts", "v, ts", "id, ts"])
    stream = "FROM (SELECT DISTINCT ON (%s) id, k, v, w, ts FROM {A} x) s" % keys
    batch = "FROM (SELECT DISTINCT ON (%s) id, k, v, w, ts FROM {A} x ORDER BY %s, id) s" % (keys, keys)
    template = q.template
    q.template = template.replace("FROM {A} s", stream)
    q.reference_template = lambda: "SELECT %s FROM (%s) stream_result" % (", ".join(q.columns), template.replace("FROM {A} s", batch))
    return q


def join(rng):
    q = Query()
    q.kind = "stream join"
    q.drops_null_time = True
    kind = rng.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
    outer = kind != "JOIN"
    bound = rng.choice(["l.ts BETWEEN r.ts - interval '20 seconds' AND r.ts + interval '30 seconds'",
                        "r.ts >= l.ts AND r.ts < l.ts + interval '1 minute'"])
    if not outer and rng.random() < 0.4:
        bound = "true"
    extra = rng.choice(["", " AND l.v < r.v", " AND l.v > 2", " AND r.k <> 'y'"])
    key = rng.choice(["l.k = r.k", "l.v = r.v", "l.k = r.k AND l.v = r.v", "l.w = r.w"])
    q.template = "SELECT l.id AS c1, r.id AS c2, l.k AS c3, r.v AS c4 FROM {A} l %s {B} r ON %s AND %s%s" % (kind, key, bound, extra)
    q.columns = ("c1", "c2", "c3", "c4")
    q.flush = outer
    q.counted = "coalesce(c1, 0) <> -1 AND coalesce(c2, 0) <> -1"
    q.kind += " " + kind.split()[0].lower()
    return q


def semi_join(rng):
    q = Query()
    q.kind = "semi-join"
    q.drops_null_time = True
    extra = rng.choice(["", " AND l.v <> r.v", " AND r.ts BETWEEN l.ts - interval '30 seconds' AND l.ts + interval '30 seconds'"])
    q.template = "SELECT l.id AS c1, l.k AS c2 FROM {A} l WHERE EXISTS (SELECT FROM {B} r WHERE r.k = l.k%s)" % extra
    q.columns = ("c1", "c2")
    return q


def chain(rng):
    q = Query()
    q.kind = "aggregate → aggregate"
    q.flush = q.drops_null_time = True
    outer = rng.choice(["sum(n)", "max(n)", "count(*)", "avg(n)"])
    key = rng.choice(["", ", k"])
    q.template = ("SELECT stream.tumble(stream.window_time(w5), '1 minute') AS c1%s, %s AS c2 FROM "
                  "(SELECT stream.tumble(ts, '5 seconds') AS w5, k, count(*) AS n FROM {A} s GROUP BY 1, 2) s GROUP BY 1%s"
                  % (", k AS c3" if key else "", outer, ", 2" if key else ""))
    q.columns = ("c1", "c3", "c2") if key else ("c1", "c2")
    return q


def join_then_aggregate(rng):
    q = Query()
    q.kind = "join → aggregate"
    q.flush = q.drops_null_time = True
    q.template = ("SELECT stream.tumble(lts, '1 minute') AS c1, count(*) AS c2, sum(rv) AS c3 FROM (SELECT l.ts AS lts, r.v AS rv FROM {A} l JOIN {B} r "
                  "ON l.k = r.k AND r.ts BETWEEN l.ts - interval '10 seconds' AND l.ts + interval '20 seconds') j GROUP BY 1")
    q.columns = ("c1", "c2", "c3")
    return q


GAPS = ["'5 seconds'", "'20 seconds'", "'1 minute'", "CASE WHEN v > 3 THEN interval '40 seconds' ELSE '10 seconds' END", "make_interval(secs => 5 + abs(v))"]


def session(rng):
    q = Query()
    q.kind = "session"
    q.mode = rng.choice(["append", "complete", "update", "update"])
    q.drops_null_time = True        # a session of no time is none
    q.flush = q.mode == "append"
    gap = rng.choice(GAPS)
    keys = rng.choice([["k"], ["v % 3"], ["k", "v IS NULL"], ["w"]])
    aggregates, names = aggregate_list(rng)
    having = rng.choice(["", "", " HAVING count(*) > 1", " HAVING sum(v) > 5"])
    filtered = where(rng, 0.3)
    keyed = ["%s AS g%d" % (e, i) for i, e in enumerate(keys)]
    q.template = "SELECT %s FROM {A} s%s GROUP BY %s%s" % (", ".join(keyed + ["stream.session(ts, %s) AS s" % gap] + aggregates), filtered,
                                                            ", ".join(str(i + 1) for i in range(len(keys) + 1)), having)
    q.columns = tuple(["g%d" % i for i in range(len(keys))] + ["s"] + names)
    numbered = ", ".join("g%d" % i for i in range(len(keys)))
    q.reference_template = lambda: (
        "SELECT %s, tstzrange(min(ts), max(e)) AS s, %s FROM (SELECT *, count(*) FILTER (WHERE fresh) OVER (PARTITION BY %s ORDER BY ts, id) AS n FROM "
        "(SELECT *, (ts <= max(e) OVER (PARTITION BY %s ORDER BY ts, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) IS NOT TRUE AS fresh FROM "
        "(SELECT *, ts + %s AS e, %s FROM {A} x%s) x WHERE e IS NOT NULL) y) z GROUP BY %s, n%s"
        % (numbered, ", ".join(aggregates), numbered, numbered, gap, ", ".join(keyed), filtered, numbered, having))
    return q


ORDERS = ["v DESC", "ts DESC", "w", "v DESC NULLS LAST, w", "k NULLS FIRST, v", "ts, v DESC", "w DESC NULLS LAST, k DESC", "v + 1", "lower(k) DESC, ts"]


def best(rng):
    """The best row of each key, and the best n; of equal ones the earlier, which is the one with the lower id."""
    q = Query()
    q.mode = "update"
    q.sentinel_counts = True
    keys = rng.choice([["k"], ["v % 3"], ["w"], ["k", "v"], ["coalesce(k, '-')"]])
    if rng.random() < 0.2:              # a window among them
        keys = keys + [rng.choice(list(WINDOWS)).replace("{ts}", "ts")]
        q.drops_null_time = True
    order = rng.choice(ORDERS)
    filtered = where(rng, 0.3)
    hidden = rng.random() < 0.3         # without their keys rows leave whole
    keyed = ["upper(k) AS g0"] if hidden else ["%s AS g%d" % (e, i) for i, e in enumerate(keys)]
    names = ["g%d" % i for i in range(len(keyed))]
    above = rng.choice(["", "", "c2 > 2", "c3 IS DISTINCT FROM 1 AND c2 >= 0", "g0 IS NOT NULL"])
    if rng.random() < 0.4:
        q.kind = "keep-best"
        inner = "SELECT DISTINCT ON (%s) %s, id AS c1, v AS c2, w AS c3 FROM {A} s%s ORDER BY %s, %s" % (
            ", ".join(keys), ", ".join(keyed), filtered, ", ".join(keys), order)
        q.template = "SELECT %s, c1, c2, c3 FROM (%s) x WHERE %s" % (", ".join(names), inner, above) if above else inner
        reference = q.template.replace(inner, inner + ", id")
    else:
        q.kind = "top n"
        n = rng.choice([1, 1, 2, 3, 10])
        bound = rng.choice(["rn <= %d" % n, "rn < %d" % (n + 1), "%d >= rn" % n, "rn = %d" % n, "rn BETWEEN 1 AND %d" % n, "rn BETWEEN 2 AND %d" % max(n, 2)])
        names += ["rn"] if rng.random() < 0.4 else []
        window = "row_number() OVER (%sORDER BY %s)" % ("PARTITION BY %s " % ", ".join(keys) if rng.random() < 0.9 else "", order)
        q.template = "SELECT %s, c1, c2, c3 FROM (SELECT %s, id AS c1, v AS c2, w AS c3, %s AS rn FROM {A} s%s) x WHERE %s%s" % (
            ", ".join(names), ", ".join(keyed), window, filtered, bound, above and " AND " + above)
        reference = q.template.replace(window, window[:-1] + ", id)")
    q.columns = tuple(names + ["c1", "c2", "c3"])
    q.reference_template = lambda: "SELECT %s FROM (%s) stream_result" % (", ".join(q.columns), reference)
    return q


KINDS = [(stateless, 3), (aggregate, 6), (aggregate_of_union, 2), (aggregate_over_join_with_table, 2), (dedup, 2), (dedup_then_aggregate, 1), (join, 3),
         (semi_join, 1), (chain, 1), (join_then_aggregate, 1), (session, 3), (best, 3)]


def generate(rng):
    kinds = [k for k, weight in KINDS for _ in range(weight)]
    return rng.choice(kinds)(rng)
