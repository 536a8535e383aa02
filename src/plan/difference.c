/*
 * difference.c: does saved state fit a plan, and if not, what differs, in the user's words.
 * Columns are the same if either their name or their place in the relation is: renaming one, or dropping another before it, keeps the state.
 */
#include "plan/internal.h"

#include "lib/stringinfo.h"
#include "utils/builtins.h"

static JsonbValue *
member(JsonbContainer *object, const char *name)
{
	JsonbValue *value = palloc(sizeof(JsonbValue));

	if (!JsonContainerIsObject(object))
		return NULL;
	return getKeyJsonValueFromContainer(object, name, strlen(name), value);
}

static bool same_value(JsonbValue *a, JsonbValue *b);

static bool
same_member(JsonbContainer *a, JsonbContainer *b, const char *name)
{
	JsonbValue *va = member(a, name), *vb = member(b, name);

	return va && vb && same_value(va, vb);
}

/* Every member of a is in b, and the same. */
static bool
covers(JsonbContainer *a, JsonbContainer *b)
{
	JsonbIterator *it = JsonbIteratorInit(a);
	JsonbValue key;
	JsonbIteratorToken token = JsonbIteratorNext(&it, &key, false);

	while ((token = JsonbIteratorNext(&it, &key, true)) == WJB_KEY)
	{
		JsonbValue value, *other = getKeyJsonValueFromContainer(b, key.val.string.val, key.val.string.len, palloc(sizeof(JsonbValue)));

		(void) JsonbIteratorNext(&it, &value, true);
		if (other == NULL || !same_value(&value, other))
			return false;
	}
	return true;
}

static bool
same_container(JsonbContainer *a, JsonbContainer *b)
{
	if (JsonContainerIsArray(a) != JsonContainerIsArray(b) || JsonContainerSize(a) != JsonContainerSize(b))
		return false;
	if (JsonContainerIsArray(a))
	{
		for (uint32 i = 0; i < JsonContainerSize(a); i++)
			if (!same_value(getIthJsonbValueFromContainer(a, i), getIthJsonbValueFromContainer(b, i)))
				return false;
		return true;
	}
	if (member(a, "column") && member(b, "column"))
		return same_member(a, b, "of") && (same_member(a, b, "column") || same_member(a, b, "position"));
	return covers(a, b);
}

static bool
same_value(JsonbValue *a, JsonbValue *b)
{
	Jsonb *ja, *jb;

	if (a->type == jbvBinary && b->type == jbvBinary)
		return same_container(a->val.binary.data, b->val.binary.data);
	ja = JsonbValueToJsonb(a);
	jb = JsonbValueToJsonb(b);
	return compareJsonbContainers(&ja->root, &jb->root) == 0;
}

/* ---- keys ---- */

static bool
has_columns(JsonbContainer *expression)
{
	JsonbIterator *it = JsonbIteratorInit(expression);
	JsonbValue value;
	JsonbIteratorToken token;

	while ((token = JsonbIteratorNext(&it, &value, false)) != WJB_DONE)
		if (token == WJB_KEY && value.val.string.len == 2 && memcmp(value.val.string.val, "of", 2) == 0)
			return true;
	return false;
}

/*
 * A key that is the same for all rows, such as a name the query gives itself, may change: groups from before keep theirs. Only a single one: keys have no
 * names to tell two such apart by.
 */
static bool
same_keys(JsonbContainer *a, JsonbContainer *b)
{
	int constants = 0, changed = 0;

	if (JsonContainerSize(a) != JsonContainerSize(b))
		return false;
	for (uint32 i = 0; i < JsonContainerSize(a); i++)
	{
		JsonbValue *x = getIthJsonbValueFromContainer(a, i), *y = getIthJsonbValueFromContainer(b, i);
		bool constant = !has_columns(x->val.binary.data) && !has_columns(y->val.binary.data);

		constants += constant;
		if (same_value(x, y))
			continue;
		if (!constant || !same_member(x->val.binary.data, y->val.binary.data, "type"))
			return false;
		changed++;
	}
	return changed == 0 || constants == 1;
}

/* ---- in words ---- */

static void write_value(StringInfo out, JsonbValue *value);

/* "sum($4)" over columns: "sum(amount)". */
static void
write_expression(StringInfo out, JsonbValue *text, JsonbValue *over)
{
	const char *p = text->val.string.val, *end = p + text->val.string.len;

	while (p < end)
	{
		int n = 0, digits = 0;

		if (*p == '$' && over && over->type == jbvBinary)
			while (p + 1 + digits < end && isdigit((unsigned char) p[1 + digits]) && digits < 4)
				n = n * 10 + p[1 + digits++] - '0';
		if (n > STREAM_PARAM_COUNT && n - STREAM_PARAM_COUNT <= (int) JsonContainerSize(over->val.binary.data))
		{
			write_value(out, getIthJsonbValueFromContainer(over->val.binary.data, n - STREAM_PARAM_COUNT - 1));
			p += 1 + digits;
		}
		else
			appendStringInfoChar(out, *p++);
	}
}

/* How keep-best sorts by it. */
static void
write_direction(StringInfo out, JsonbContainer *object)
{
	JsonbValue *operator = member(object, "operator"), *nulls_first = member(object, "nulls_first");

	if (operator && nulls_first)
		appendStringInfo(out, " USING %.*s NULLS %s", operator->val.string.len, operator->val.string.val, nulls_first->val.boolean ? "FIRST" : "LAST");
}

static void
write_value(StringInfo out, JsonbValue *value)
{
	JsonbContainer *object = value->type == jbvBinary ? value->val.binary.data : NULL;
	JsonbValue *part;

	if (object && (part = member(object, "column")) != NULL)
		appendBinaryStringInfo(out, part->val.string.val, part->val.string.len);
	else if (object && (part = member(object, "expression")) != NULL)
		write_expression(out, part, member(object, "over"));
	else if (object && (part = member(object, "union")) != NULL)
		write_value(out, getIthJsonbValueFromContainer(part->val.binary.data, 0));
	else if (object && (part = member(object, "value")) != NULL)
	{
		write_value(out, part);
		write_direction(out, object);
	}
	else
	{
		Jsonb *json = JsonbValueToJsonb(value);

		(void) JsonbToCString(out, &json->root, VARSIZE(json));
	}
}

static char *
value_text(JsonbValue *value)
{
	StringInfoData out;

	initStringInfo(&out);
	if (value && value->type == jbvBinary && JsonContainerIsArray(value->val.binary.data))
		for (uint32 i = 0; i < JsonContainerSize(value->val.binary.data); i++)
		{
			appendStringInfoString(&out, i > 0 ? ", " : "");
			write_value(&out, getIthJsonbValueFromContainer(value->val.binary.data, i));
		}
	else if (value)
		write_value(&out, value);
	return out.len > 0 ? out.data : "none";
}

/* Members of an operator that decide whether state fits; which processor it is does not. New variables start empty. */
static bool
member_fits(JsonbContainer *saved, JsonbContainer *now, const char *name)
{
	JsonbValue *a = member(saved, name), *b = member(now, name);

	if (a == NULL || b == NULL)
		return a == b;
	if (strcmp(name, "variables") == 0)
		return covers(a->val.binary.data, b->val.binary.data);
	if (strcmp(name, "keys") == 0 && member(saved, "right_keys") == NULL)
		return same_keys(a->val.binary.data, b->val.binary.data);
	return same_value(a, b);
}

static bool
all_members_fit(JsonbContainer *saved, JsonbContainer *now)
{
	JsonbIterator *it = JsonbIteratorInit(saved);
	JsonbValue key;
	JsonbIteratorToken token = JsonbIteratorNext(&it, &key, false);

	if (JsonContainerSize(saved) != JsonContainerSize(now))
		return false;
	while ((token = JsonbIteratorNext(&it, &key, true)) == WJB_KEY)
	{
		JsonbValue value;

		if (!member_fits(saved, now, pnstrdup(key.val.string.val, key.val.string.len)))
			return false;
		(void) JsonbIteratorNext(&it, &value, true);
	}
	return true;
}

static bool
operator_fits(JsonbValue *saved, JsonbValue *now)
{
	static const char *const members[] = {"operator", "keys", "time_mode", "variables"};

	if (!member(saved->val.binary.data, "processor"))
		return all_members_fit(saved->val.binary.data, now->val.binary.data);
	for (int m = 0; m < lengthof(members); m++)
		if (!member_fits(saved->val.binary.data, now->val.binary.data, members[m]))
			return false;
	return true;
}

/* Columns of one name may be of two relations or types: then everything that is known of them is shown. */
static void
write_two(StringInfo out, const char *what, JsonbValue *saved, JsonbValue *now)
{
	char *saved_text = value_text(saved), *now_text = value_text(now);

	if (strcmp(saved_text, now_text) == 0 && saved && now)
	{
		Jsonb *saved_json = JsonbValueToJsonb(saved), *now_json = JsonbValueToJsonb(now);

		saved_text = JsonbToCString(NULL, &saved_json->root, VARSIZE(saved_json));
		now_text = JsonbToCString(NULL, &now_json->root, VARSIZE(now_json));
	}
	appendStringInfo(out, "%s: saved %s; new %s", what, saved_text, now_text);
}

static void
write_operator_difference(StringInfo out, int i, JsonbContainer *saved, JsonbContainer *now)
{
	static const char *const members[] = {"operator", "type", "keys", "right_keys", "aggregates", "columns", "right_columns",
										  "nulls_match", "order", "rows", "watermark", "within", "panes", "time_mode", "variables"};

	for (int m = 0; m < lengthof(members); m++)
	{
		JsonbValue *a = member(saved, members[m]), *b = member(now, members[m]);

		if (member_fits(saved, now, members[m]))
			continue;
		write_two(out, psprintf("%sstateful operator %d has other %s", out->len > 0 ? ". " : "", i, members[m]), a, b);
		return;
	}
	appendStringInfo(out, "%sstateful operator %d differs", out->len > 0 ? ". " : "", i);
}

static int
count_operators(Jsonb *signature)
{
	return signature ? JB_ROOT_COUNT(signature) : 0;
}

char *
plan_signature_difference(Jsonb *saved, Jsonb *now)
{
	StringInfoData out;
	int n = count_operators(saved), m = count_operators(now);

	initStringInfo(&out);
	for (int i = 0; i < Min(n, m); i++)
	{
		JsonbValue *a = getIthJsonbValueFromContainer(&saved->root, i), *b = getIthJsonbValueFromContainer(&now->root, i);

		if (!operator_fits(a, b))
			write_operator_difference(&out, i, a->val.binary.data, b->val.binary.data);
	}
	if (n != m)
		appendStringInfo(&out, "%sthe query had %d stateful operators and now has %d", out.len > 0 ? ". " : "", n, m);
	return out.len > 0 ? out.data : NULL;
}

/* ---- what is new ---- */

static JsonbContainer *
signature_operator(Jsonb *signature, int i)
{
	return getIthJsonbValueFromContainer(&signature->root, i)->val.binary.data;
}

/* The place of a saved call among the new ones; -1: it is gone. */
static int
find_call(JsonbValue *call, JsonbContainer *calls)
{
	for (int i = 0; i < (int) JsonContainerSize(calls); i++)
		if (same_value(call, getIthJsonbValueFromContainer(calls, i)))
			return i;
	return -1;
}

List *
plan_signature_calls(Jsonb *saved, Jsonb *now, int operator_id)
{
	JsonbValue *a = member(signature_operator(saved, operator_id), "aggregates"), *b = member(signature_operator(now, operator_id), "aggregates");
	List *places = NIL;

	if (a == NULL || b == NULL || same_value(a, b))
		return NIL;
	for (uint32 i = 0; i < JsonContainerSize(a->val.binary.data); i++)
		places = lappend_int(places, find_call(getIthJsonbValueFromContainer(a->val.binary.data, i), b->val.binary.data));
	return places;
}

static bool
operator_extends(Jsonb *saved, Jsonb *now, int i)
{
	static const char *const members[] = {"operator", "watermark", "keys", "panes"};
	JsonbContainer *a = signature_operator(saved, i), *b = signature_operator(now, i);
	JsonbValue *closes = member(a, "watermark");
	List *places = plan_signature_calls(saved, now, i);

	for (int m = 0; m < lengthof(members); m++)
		if (!member_fits(a, b, members[m]))
			return false;
	return places != NIL && !list_member_int(places, -1) && closes && closes->type == jbvBool && closes->val.boolean;
}

bool
plan_signature_extends(Jsonb *saved, Jsonb *now)
{
	int n = count_operators(saved);
	bool any = false;

	if (n != count_operators(now))
		return false;
	for (int i = 0; i < n; i++)
	{
		if (operator_fits(getIthJsonbValueFromContainer(&saved->root, i), getIthJsonbValueFromContainer(&now->root, i)))
			continue;
		if (!operator_extends(saved, now, i))
			return false;
		any = true;
	}
	return any;
}
