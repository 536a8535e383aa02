"""grammar: random streaming queries, each with the plain SELECT its final answer must equal.

Text templates name the sources {A} and {B}. In the streaming query they are the sources; in the reference they are subqueries over the base tables
that leave out what the stream must not count: late rows where the query drops them, the sentinel rows that close the last windows. Column `mark` of
the base tables is the watermark that held when the row came.
"""

WINDOWS = {         # key expression → when it closes
    "stream.tumble({ts}, '10 seconds')": "upper(stream.tumble({ts}, '10 seconds'))",
    "stream.tumble({ts}, '1 minute', to_timestamp(7))": "upper(stream.tumble({ts}, '1 minute', to_timestamp(7)))",
    "date_trunc('minute', {ts})": "date_trunc('minute', {ts}) + interval '1 minute'",
    "date_bin('15 seconds', {ts}, 'epoch')": "date_bin('15 seconds', {ts}, 'epoch') + interval '15 seconds'",
}
HOPS = ["stream.hop(ts, '20 seconds', '5 seconds')", "stream.hop(ts, '25 seconds', '10 seconds')", "stream.hop(ts, '1 minute', '1 minute')",
        "stream.hop(ts, '1 minute', '1 second')", "stream.hop(ts, '30 seconds', '20 seconds', to_timestamp(7))"]
PLAIN_KEYS = ["k", "v % 3", "v", "w", "coalesce(k, '-')", "v IS NULL", "lower(k) || '!'"]
AGGREGATES = ["count(*)", "count(v)", "sum(v)", "avg(v)", "min(k)", "max(w)", "sum(w)", "bool_or(v > 3)", "count(*) FILTER (WHERE v > 1)",
              "sum(v) * 2 + count(*)", "max(v) - min(v)", "var_pop(v)", "stddev(w)", "count(DISTINCT v)", "string_agg(k, ',' ORDER BY id)",
              "array_agg(DISTINCT v ORDER BY v)", "coalesce(sum(v), -1)", "bit_or(v)", "max(ts)", "min(id)", "array_agg(v ORDER BY id)",
              "sum(DISTINCT v)", "json_agg(v ORDER BY id)::text", "avg(w) FILTER (WHERE k = 'x')", "percentile_disc(0.5) WITHIN GROUP (ORDER BY v)",
              "mode() WITHIN GROUP (ORDER BY k)", "regr_count(v, w)", "sum(v::float8)", "max(k) FILTER (WHERE v > 2)", "every(v < 8)"]
LABELS = "(SELECT v, min(label) AS label FROM dim GROUP BY v)"
FILTERS = ["v > 2", "k IS NOT NULL", "k <> 'x' OR v = 1", "v BETWEEN 0 AND 5", "w IS DISTINCT FROM 1", "id % 3 <> 0"]


LONG = "1 hour"
SHORT = "20 seconds"


class Query:
    kind = "?"
    mode = "append"
    delay = LONG                # so long that no row is late, unless the query is about lateness
    disorder = 40               # seconds
    options = "{}"
    limit = 0                   # rows a batch takes of a source at most; 0: all
    flush = False               # sentinel rows close what is open
    drops_null_time = False     # rows without event time do not count
    may_be_refused = True
    late = None                 # expression of ts: when the row's group closes
    late_windows = False        # the reference looks at `mark` itself
    sentinel_counts = False
    counted = ""                # which rows of the target are compared: sentinels may come out of an outer join at once
    template = ""
    columns = ()

    def text(self):
        return self.template.replace("{A}", "a").replace("{B}", "b")

    def sources(self):
        return [t for t in "ab" if "{%s}" % t.upper() in self.template]

    def drops_late(self, late="{ts}"):
        """Now rows are late, and dropped when the operator's watermark has reached `late`."""
        self.kind += ", late rows"
        self.delay, self.late = SHORT, late

    def late_expression(self, ts):
        return self.late.replace("{ts}", ts) if self.late else "NULL::timestamptz"

    def reference(self):
        where = [] if self.sentinel_counts else ["NOT sentinel"]
        if self.late or self.drops_null_time:
            where.append("NOT late")
        rows = "(SELECT id, k, v, w, ts, mark FROM %s_t" + (" WHERE " + " AND ".join(where) if where else "") + ")"
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


def aggregate(rng, may_be_late=True):
    q = Query()
    q.kind = "aggregate"
    q.mode = rng.choice(["append", "update", "update", "complete", "complete"])
    keys = rng.sample(PLAIN_KEYS, rng.choice([0, 1, 1, 2]))
    window = hop = None
    if q.mode == "append" or rng.random() < 0.5:
        window = rng.choice(list(WINDOWS) + HOPS)
        hop = window if window in HOPS else None
        keys.append(window.replace("{ts}", "ts"))
    if hop:
        q.kind += " of hops"
    if window and q.mode != "complete":
        q.drops_null_time = True
        if may_be_late and rng.random() < 0.5:
            q.drops_late(WINDOWS.get(window))
            q.late_windows = hop is not None
    q.flush = q.mode == "append"
    if q.mode == "update" and not keys:
        q.mode = "complete"
    aggregates, names = aggregate_list(rng)
    having = rng.choice([" HAVING count(*) > 1", " HAVING count(v) < 4"]) if keys and rng.random() < 0.3 else ""
    group = " GROUP BY " + ", ".join(str(i + 1) for i in range(len(keys))) if keys else ""
    q.template = "SELECT %s FROM {A} s%s%s%s" % (", ".join(["%s AS g%d" % (e, i) for i, e in enumerate(keys)] + aggregates), where(rng, 0.3), group, having)
    q.columns = tuple(["g%d" % i for i in range(len(keys))] + names)
    if q.late_windows:          # each of a row's windows is late or not
        q.reference_template = lambda: "SELECT %s FROM (%s) stream_result" % (", ".join(q.columns), q.template.replace(hop, "hopped").replace(
            "FROM {A} s", "FROM (SELECT x.*, hopped FROM {A} x, %s hopped WHERE mark IS NULL OR upper(hopped) > mark) s" % hop))
    return q


def aggregate_of_union(rng):
    q = aggregate(rng)
    while q.late_windows:
        q = aggregate(rng)
    q.kind += ", of union"
    third = rng.choice(["", " UNION ALL SELECT s.id + 200000, d.label, s.v, s.w, s.ts FROM {A} s JOIN %s d ON d.v = s.v" % LABELS])
    q.template = q.template.replace("FROM {A} s", "FROM (SELECT id, k, v, w, ts FROM {A} x UNION ALL SELECT id + 100000, k, v, w, ts FROM {B} y%s%s) s"
                                    % (where(rng, 0.3), third))
    return q


def aggregate_over_join_with_table(rng):
    q = aggregate(rng)
    while q.late_windows:
        q = aggregate(rng)
    q.kind += ", static join"
    q.template = q.template.replace("FROM {A} s", "FROM (SELECT s.id, d.label AS k, s.v, s.w, s.ts FROM {A} s LEFT JOIN %s d ON d.v = s.v) s" % LABELS)
    return q


def dedup(rng):
    q = Query()
    q.kind = "dedup"
    q.mode = rng.choice(["append", "update"])
    q.sentinel_counts = True
    q.drops_null_time = True
    within = rng.random() < 0.3
    if within:
        q.kind += " within watermark"
        q.options = '{"dedup_within_watermark": true}'
    elif rng.random() < 0.3:
        q.drops_late()
    if not within and rng.random() < 0.5:
        q.template = "SELECT DISTINCT %s FROM {A} s%s" % ("k AS c1, v AS c2, w AS c3", where(rng))
        q.columns = ("c1", "c2", "c3")
        return q
    keys = rng.choice(["k", "v", "k, v", "w", "ts", "k, ts"])
    q.template = "SELECT DISTINCT ON (%s) id AS c1, k AS c2, v AS c3, w AS c4 FROM {A} s%s" % (keys, where(rng))
    q.columns = ("c1", "c2", "c3", "c4")
    q.reference_template = lambda: q.template + " ORDER BY %s, id" % keys
    return q


def dedup_of_union(rng):
    q = Query()
    q.kind = "dedup of union"
    q.sentinel_counts = q.drops_null_time = True
    if rng.random() < 0.3:
        q.drops_late()
    q.template = "SELECT DISTINCT k AS c1, v AS c2 FROM (SELECT k, v, ts FROM {A} x%s UNION ALL SELECT k, v, ts FROM {B} y%s) s" % (where(rng, 0.3), where(rng, 0.3))
    q.columns = ("c1", "c2")
    return q


def limit(rng):
    q = Query()
    q.kind = "limit"
    q.sentinel_counts = True
    q.template = "SELECT id AS c1, k AS c2 FROM {A} s%s LIMIT %d" % (where(rng), rng.choice([1, 3, 10, 50]))
    q.columns = ("c1", "c2")
    q.reference_template = lambda: q.template.replace(" LIMIT", " ORDER BY id LIMIT")
    return q


def dedup_then_aggregate(rng):
    q = aggregate(rng, may_be_late=False)
    q.kind = "dedup → " + q.kind
    if q.mode != "complete" and rng.random() < 0.3:
        q.drops_late()
    q.drops_null_time = q.mode != "complete"
    keys = rng.choice(["k, ts", "v, ts", "id, ts"])
    stream = "FROM (SELECT DISTINCT ON (%s) id, k, v, w, ts FROM {A} x) s" % keys
    batch = "FROM (SELECT DISTINCT ON (%s) id, k, v, w, ts FROM {A} x ORDER BY %s, id) s" % (keys, keys)
    template = q.template
    q.template = template.replace("FROM {A} s", stream)
    q.reference_template = lambda: "SELECT %s FROM (%s) stream_result" % (", ".join(q.columns), template.replace("FROM {A} s", batch))
    return q


BOUNDS = ["l.ts BETWEEN r.ts - interval '20 seconds' AND r.ts + interval '30 seconds'", "r.ts >= l.ts AND r.ts < l.ts + interval '1 minute'",
          "l.ts > r.ts - interval '10 seconds' AND r.ts >= l.ts - interval '5 seconds'",
          "stream.tumble(l.ts, '20 seconds') = stream.tumble(r.ts, '20 seconds')"]
JOIN_KEYS = ["l.k = r.k", "l.v = r.v", "l.k = r.k AND l.v = r.v", "l.w = r.w", "lower(l.k) = r.k", "l.v + 1 = r.v"]


def join(rng):
    q = Query()
    q.kind = "stream join"
    q.drops_null_time = True
    kind = rng.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
    outer = kind != "JOIN"
    bound = rng.choice(BOUNDS)
    if not outer and rng.random() < 0.4:
        bound = "true"
    q.mode = "append" if outer else rng.choice(["append", "update"])
    extra = rng.choice(["", " AND l.v < r.v", " AND l.v > 2", " AND r.k <> 'y'"])
    q.template = "SELECT l.id AS c1, r.id AS c2, l.k AS c3, r.v AS c4 FROM {A} l %s {B} r ON %s AND %s%s" % (kind, rng.choice(JOIN_KEYS), bound, extra)
    q.columns = ("c1", "c2", "c3", "c4")
    q.flush = outer
    q.counted = "coalesce(c1, 0) <> -1 AND coalesce(c2, 0) <> -1"
    q.kind += " " + kind.split()[0].lower()
    if bound != "true" and rng.random() < 0.3:
        q.drops_late()
    return q


def self_join(rng):
    q = join(rng)
    while q.late or q.flush:
        q = join(rng)
    q.kind = "stream join with itself"
    q.template = q.template.replace("{B}", "{A}")
    return q


def join_of_three(rng):
    q = Query()
    q.kind = "join → join"
    q.drops_null_time = True
    last = rng.choice(["JOIN", "JOIN", "LEFT JOIN"])
    q.flush = last != "JOIN"
    q.counted = "c1 <> -1"
    q.template = ("SELECT j.id AS c1, j.rid AS c2, m.id AS c3 FROM (SELECT l.id, r.id AS rid, l.k, l.v, l.ts FROM {A} l JOIN {B} r ON %s AND %s) j "
                  "%s {B} m ON m.v = j.v AND m.ts BETWEEN j.ts - interval '15 seconds' AND j.ts + interval '15 seconds'"
                  % (rng.choice(JOIN_KEYS), rng.choice(BOUNDS), last))
    q.columns = ("c1", "c2", "c3")
    return q


def semi_join(rng):
    q = Query()
    q.kind = "semi-join"
    q.drops_null_time = True
    q.mode = rng.choice(["append", "update"])
    extra = " AND " + rng.choice(BOUNDS) + rng.choice(["", " AND l.v <> r.v"])
    q.template = rng.choice(["SELECT l.id AS c1, l.k AS c2 FROM {A} l WHERE EXISTS (SELECT FROM {B} r WHERE r.k = l.k%s)",
                             "SELECT l.id AS c1, l.k AS c2 FROM {A} l WHERE l.v > 1 AND l.k IN (SELECT r.k FROM {B} r WHERE true%s)"]) % extra
    q.columns = ("c1", "c2")
    if rng.random() < 0.3:
        q.drops_late()
    return q


def chain(rng):
    q = Query()
    q.kind = "aggregate → aggregate"
    q.flush = q.drops_null_time = True
    outer = rng.choice(["sum(n)", "max(n)", "count(*)", "avg(n)"])
    key = rng.choice(["", ", k"])
    inner = rng.choice(["stream.tumble(ts, '5 seconds')", "stream.hop(ts, '10 seconds', '5 seconds')"])
    q.template = ("SELECT stream.tumble(stream.window_time(w5), '1 minute') AS c1%s, %s AS c2 FROM "
                  "(SELECT %s AS w5, k, count(*) AS n FROM {A} s GROUP BY 1, 2) s GROUP BY 1%s"
                  % (", k AS c3" if key else "", outer, inner, ", 2" if key else ""))
    q.columns = ("c1", "c3", "c2") if key else ("c1", "c2")
    if "tumble" in inner and rng.random() < 0.3:
        q.drops_late("upper(stream.tumble({ts}, '5 seconds'))")
    return q


def join_then_aggregate(rng):
    q = Query()
    q.kind = "join → aggregate"
    q.flush = q.drops_null_time = True
    kind = rng.choice(["JOIN", "JOIN", "LEFT JOIN"])
    window = rng.choice(["stream.tumble(lts, '1 minute')", "stream.hop(lts, '30 seconds', '10 seconds')"])
    q.template = ("SELECT %s AS c1, count(*) AS c2, sum(rv) AS c3 FROM (SELECT l.ts AS lts, r.v AS rv FROM {A} l %s {B} r "
                  "ON l.k = r.k AND r.ts BETWEEN l.ts - interval '10 seconds' AND l.ts + interval '20 seconds') j GROUP BY 1" % (window, kind))
    q.columns = ("c1", "c2", "c3")
    q.counted = "upper(c1) < '2031-01-01'"
    if rng.random() < 0.3:
        q.drops_late()
    return q


def join_then_dedup(rng):
    q = Query()
    q.kind = "join → dedup"
    q.drops_null_time = True
    q.mode = rng.choice(["append", "update"])
    q.template = "SELECT DISTINCT l.k AS c1, r.v AS c2 FROM {A} l JOIN {B} r ON %s AND %s" % (rng.choice(JOIN_KEYS), rng.choice(BOUNDS + ["true"]))
    q.columns = ("c1", "c2")
    q.sentinel_counts = True
    return q


def dedup_then_join(rng):
    q = Query()
    q.kind = "dedup → join"
    q.drops_null_time = True
    keys = rng.choice(["k", "v", "k, v"])
    template = "SELECT l.id AS c1, r.id AS c2 FROM (SELECT DISTINCT ON (%s) id, k, v, w, ts FROM {A} x%%s) l JOIN {B} r ON %s AND %s" % (
        keys, rng.choice(JOIN_KEYS), rng.choice(BOUNDS + ["true"]))
    q.template = template % ""
    q.columns = ("c1", "c2")
    q.reference_template = lambda: template % (" ORDER BY %s, id" % keys)
    return q


def semi_join_then_aggregate(rng):
    q = Query()
    q.kind = "semi-join → aggregate"
    q.flush = q.drops_null_time = True
    q.template = ("SELECT stream.tumble(ts, '30 seconds') AS c1, count(*) AS c2, sum(v) AS c3 FROM (SELECT l.ts, l.v FROM {A} l WHERE EXISTS (SELECT FROM {B} r "
                  "WHERE r.k = l.k AND r.ts BETWEEN l.ts - interval '10 seconds' AND l.ts + interval '20 seconds')) j GROUP BY 1")
    q.columns = ("c1", "c2", "c3")
    return q


def join_of_aggregates(rng):
    """Windows of two streams side by side."""
    q = Query()
    q.kind = "aggregates → join"
    q.flush = q.drops_null_time = True
    kind = rng.choice(["JOIN", "LEFT JOIN", "FULL JOIN"])
    q.template = ("SELECT coalesce(x.w, y.w) AS c1, x.k AS c2, y.k AS c3, n, s FROM (SELECT stream.tumble(ts, '20 seconds') AS w, k, count(*) AS n FROM {A} a GROUP BY 1, 2) x %s "
                  "(SELECT stream.tumble(ts, '20 seconds') AS w, k, sum(v) AS s FROM {B} b GROUP BY 1, 2) y ON x.w = y.w AND x.k = y.k" % kind)
    q.columns = ("c1", "c2", "c3", "n", "s")
    q.counted = "upper(c1) < '2031-01-01'"
    return q


def union_of_aggregates(rng):
    q = Query()
    q.kind = "union of aggregates"
    q.flush = q.drops_null_time = True
    q.template = ("SELECT 'a' AS c1, stream.tumble(ts, '20 seconds') AS c2, count(*) AS c3 FROM {A} a GROUP BY 2 UNION ALL "
                  "SELECT 'b', stream.tumble(ts, '30 seconds'), sum(v) FROM {B} b%s GROUP BY 2" % where(rng))
    q.columns = ("c1", "c2", "c3")
    return q


def aggregate_then_static(rng):
    q = Query()
    q.kind = "aggregate → static join"
    q.mode = rng.choice(["update", "complete"])
    q.template = ("SELECT x.v AS c1, d.label AS c2, n AS c3 FROM (SELECT v, count(*) AS n, sum(w) AS s FROM {A} a GROUP BY v) x %s "
                  "%s d ON d.v = x.v" % (rng.choice(["JOIN", "LEFT JOIN"]), LABELS))
    q.columns = ("c1", "c2", "c3")
    return q


def aggregate_then_lookup(rng):
    """Groups beside a table by what they come out as: another batch makes other rows of them."""
    q = Query()
    q.kind = "aggregate → join by its result"
    q.mode = rng.choice(["update", "update", "complete"])
    key, shown = rng.choice([("v", "v AS c1"), ("w", "w AS c1"), ("coalesce(k, '-')", "coalesce(k, '-') AS c1"),
                             ("stream.tumble(ts, '30 seconds')", "lower(stream.tumble(ts, '30 seconds')) AS c1"), ("", "'all' AS c1")])
    q.drops_null_time = "tumble" in key and q.mode != "complete"
    inner = "SELECT %s, count(*) AS n, sum(v) AS s FROM {A} a%s" % (shown, where(rng, 0.3)) + (" GROUP BY " + key if key else "")
    beside = rng.choice(["JOIN %s d ON d.v = n %% 5", "LEFT JOIN %s d ON d.v = n %% 7", "LEFT JOIN %s d ON d.v = s", "JOIN %s d ON d.v < n",
                         ", LATERAL (SELECT max(d.label) AS label FROM %s d WHERE d.v <= n) d", "JOIN %s d ON d.v = abs(s) %% 5 AND n > 1"])
    beside = beside % LABELS
    condition = rng.choice(["", "", " WHERE n < 9", " WHERE label IS DISTINCT FROM 'label 1'"])
    q.template = "SELECT %s FROM (%s) x %s%s" % (rng.choice(["x.c1, label AS c2, n AS c3", "label AS c2, n AS c3, x.c1"]), inner, beside, condition)
    q.columns = ("c1", "c2", "c3")
    return q


def ends_of_windows(rng):
    q = Query()
    q.kind = "aggregate, windows by their ends"
    q.mode = rng.choice(["append", "update", "update", "complete"])
    q.flush = q.mode == "append"
    q.drops_null_time = q.mode != "complete"
    window = rng.choice(["stream.tumble(ts, '10 seconds')"] + HOPS)
    ends = rng.choice([["lower(w9)"], ["upper(w9)"], ["lower(w9)", "upper(w9)"], ["stream.window_time(w9)"]])
    having = rng.choice(["", " WHERE n < 3", " WHERE n > 1 AND s IS DISTINCT FROM 7"])
    key = rng.choice(["", ", k", ", v % 2"])
    q.template = "SELECT %s, n, s FROM (SELECT %s AS w9%s, count(*) AS n, sum(v) AS s FROM {A} a%s GROUP BY 1%s) x%s" % (
        ", ".join(["%s AS c%d" % (e, i) for i, e in enumerate(ends)] + (["k2"] if key else [])), window, key + " AS k2" if key else "", where(rng, 0.3),
        ", 2" if key else "", having)
    q.columns = tuple(["c%d" % i for i in range(len(ends))] + (["k2"] if key else []) + ["n", "s"])
    return q


def unpivot(rng):
    q = Query()
    q.kind = "aggregate → VALUES"
    q.mode = rng.choice(["update", "complete"])
    q.template = ("SELECT v AS c1, what AS c2, value AS c3 FROM (SELECT v, count(*) AS n, sum(w) AS s, max(w) AS m FROM {A} a%s GROUP BY v) x, "
                  "LATERAL (VALUES ('n', n::numeric), ('s', s), ('m', m)) l(what, value)%s" % (where(rng), rng.choice(["", " WHERE value > 2", " WHERE what <> 's'"])))
    q.columns = ("c1", "c2", "c3")
    return q


def scalar_subqueries(rng):
    """Subqueries over tables in every place an expression may stand."""
    q = Query()
    q.kind = "subqueries over tables"
    sub = lambda: rng.choice(["(SELECT min(label) FROM dim d WHERE d.v = s.v)", "(SELECT count(*) FROM dim d WHERE d.v < s.v)", "s.v IN (SELECT v FROM dim)",
                              "EXISTS (SELECT FROM dim d WHERE d.v = s.v)", "s.v <> ALL (SELECT v FROM dim)", "ARRAY(SELECT label FROM dim d WHERE d.v = s.v ORDER BY 1)",
                              "(s.v, 'label 1') IN (SELECT v, label FROM dim)"])
    if rng.random() < 0.5:
        q.template = "SELECT id AS c1, %s AS c2, %s AS c3 FROM {A} s WHERE %s OR s.v IN (SELECT v FROM dim WHERE label > 'label 2')" % (sub(), sub(), rng.choice(FILTERS))
        q.mode = rng.choice(["append", "update"])
    else:
        q.mode = rng.choice(["update", "complete"])
        q.template = "SELECT %s AS c1, count(*) AS c2, max((SELECT max(d.v) FROM dim d WHERE d.v <= s.v)) AS c3 FROM {A} s GROUP BY 1%s" % (
            sub(), rng.choice(["", " HAVING count(*) > (SELECT min(v) + 1 FROM dim)", " HAVING count(*) IN (SELECT v FROM dim)"]))
    q.columns = ("c1", "c2", "c3")
    return q


def difference_join(rng):
    """The time range said by a difference."""
    q = join(rng)
    while not q.flush:
        q = join(rng)
    q.kind += ", by a difference"
    for bound in BOUNDS:
        q.template = q.template.replace(bound, rng.choice(["l.ts - r.ts BETWEEN '-20 seconds' AND '30 seconds'", "r.ts - l.ts < '1 minute' AND r.ts - l.ts >= '0'",
                                                           "interval '25 seconds' > l.ts - r.ts AND l.ts - r.ts > interval '-10 seconds' - interval '1 second'"]))
    return q


def cte_twice(rng):
    q = Query()
    q.kind = "a CTE read twice"
    shape = rng.randrange(3)
    q.drops_null_time = shape == 1
    base = "WITH base AS (SELECT id, k, v, ts FROM {A} s%s) " % where(rng)
    if shape == 0:
        q.mode = rng.choice(["append", "update"])
        q.template = base + "SELECT id AS c1, v AS c2 FROM base WHERE v > 3 UNION ALL SELECT -id, v FROM base WHERE v <= 5"
    elif shape == 1:
        q.mode = rng.choice(["append", "update"])
        q.template = base + "SELECT x.id AS c1, y.id AS c2 FROM base x JOIN base y ON x.k = y.k AND x.id < y.id AND y.ts BETWEEN x.ts - interval '10 seconds' AND x.ts + interval '1 minute'"
    else:
        q.mode = rng.choice(["update", "complete"])
        q.template = base + "SELECT k AS c1, count(*) AS c2 FROM (SELECT k FROM base UNION ALL SELECT k FROM base WHERE v > 2 UNION ALL SELECT lower(k) FROM {B} b) u GROUP BY 1"
    q.columns = ("c1", "c2")
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


def session_then_aggregate(rng):
    q = session(rng)
    while q.mode != "append" or len(q.columns) < 3:
        q = session(rng)
    inner, reference = q.template, q.reference_template()
    q.kind = "session → aggregate"
    outer = "SELECT stream.tumble(stream.window_time(s), '2 minutes') AS c1, count(*) AS c2, max(upper(s)) AS c3 FROM (%s) y GROUP BY 1"
    q.template = outer % inner
    q.reference_template = lambda: outer % reference
    q.columns = ("c1", "c2", "c3")
    return q


KINDS = [(stateless, 3), (aggregate, 8), (aggregate_of_union, 2), (aggregate_over_join_with_table, 2), (dedup, 3), (dedup_of_union, 1), (limit, 1),
         (dedup_then_aggregate, 2), (join, 4), (self_join, 1), (join_of_three, 1), (semi_join, 2), (chain, 2), (join_then_aggregate, 2), (join_then_dedup, 1),
         (dedup_then_join, 1), (semi_join_then_aggregate, 1), (join_of_aggregates, 1), (union_of_aggregates, 1), (aggregate_then_static, 1), (session, 3),
         (session_then_aggregate, 1), (best, 4), (aggregate_then_lookup, 3), (ends_of_windows, 3), (unpivot, 1), (scalar_subqueries, 2), (difference_join, 2),
         (cte_twice, 2)]


def generate(rng):
    kinds = [k for k, weight in KINDS for _ in range(weight)]
    q = rng.choice(kinds)(rng)
    if q.delay == LONG and rng.random() < 0.4:      # nothing is late, however the rows fall into batches
        q.limit = rng.choice([1, 2, 7, 30])
    return q
