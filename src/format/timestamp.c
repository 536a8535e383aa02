/*
 * timestamp.c: text or number of an instant → microseconds since 2000-01-01.
 * Fractions round as PostgreSQL's own input does, so one instant falls into one window whatever path it came by.
 */
#include "format/timestamp.h"

#include <math.h>
#include <string.h>

#include "format/number.h"

#define MICROSECONDS_PER_SECOND INT64_C(1000000)
#define SECONDS_PER_DAY 86400
#define EPOCH_DAYS 10957 /* from 1970-01-01 to 2000-01-01 */
#define MAX_ZONE_HOURS 15
#define DATE_LENGTH 10

static const double fraction_unit[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};
static const int64_t int_power[] = {1,
									10,
									100,
									1000,
									10000,
									100000,
									1000000,
									10000000,
									100000000,
									1000000000,
									INT64_C(10000000000),
									INT64_C(100000000000),
									INT64_C(1000000000000),
									INT64_C(10000000000000),
									INT64_C(100000000000000),
									INT64_C(1000000000000000),
									INT64_C(10000000000000000),
									INT64_C(100000000000000000),
									INT64_C(1000000000000000000)};

/* Two digits, or a number above 99. */
static inline unsigned
two_digits(const char *p)
{
	unsigned tens = (unsigned char) (p[0] - '0'), ones = (unsigned char) (p[1] - '0');

	return tens > 9 || ones > 9 ? 1000 : tens * 10 + ones;
}

static bool
valid_date(unsigned year, unsigned month, unsigned day)
{
	static const unsigned char month_days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);

	if (year < 1 || year > 9999 || month < 1 || month > 12 || day < 1)
		return false;
	return day <= month_days[month - 1] + (unsigned) (leap && month == 2);
}

/* Days since 2000-01-01 in the proleptic Gregorian calendar; years counted from March, so that the leap day comes last. */
static int32_t
date_days(int year, int month, int day)
{
	int shifted = month > 2 ? month - 3 : month + 9;
	int y = month > 2 ? year : year - 1;
	int era = y / 400, year_of_era = y % 400;
	int day_of_year = (153 * shifted + 2) / 5 + day - 1;
	int day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;

	return era * 146097 + day_of_era - 719468 - EPOCH_DAYS;
}

/* YYYY-MM-DD at p, which has ten bytes. Rows of one day come in a row. */
static bool
read_date(const char *p, TimestampText *out)
{
	static char last[DATE_LENGTH + 1] = "2000-01-01";
	static TimestampText date = {.year = 2000, .month = 1, .day = 1};

	if (memcmp(p, last, DATE_LENGTH) != 0)
	{
		unsigned century = two_digits(p), year = two_digits(p + 2), month = two_digits(p + 5), day = two_digits(p + 8);

		if (p[4] != '-' || p[7] != '-' || century > 99 || year > 99 || !valid_date(century * 100 + year, month, day))
			return false;
		date.year = century * 100 + year;
		date.month = month;
		date.day = day;
		date.days = date_days(date.year, date.month, date.day);
		memcpy(last, p, DATE_LENGTH);
	}
	out->year = date.year;
	out->month = date.month;
	out->day = date.day;
	out->days = date.days;
	return true;
}

/* Z, +HH, +HHMM, +HH:MM or nothing, up to the end. */
static bool
read_zone(const char *p, const char *end, TimestampText *out)
{
	unsigned hours, minutes = 0;

	out->zone = 0;
	out->has_zone = p < end;
	if (p == end || (end - p == 1 && *p == 'Z'))
		return true;
	if ((*p != '+' && *p != '-') || end - p < 3)
		return false;
	hours = two_digits(p + 1);
	if (end - p == 5)
		minutes = two_digits(p + 3);
	else if (end - p == 6 && p[3] == ':')
		minutes = two_digits(p + 4);
	else if (end - p != 3)
		return false;
	if (hours > MAX_ZONE_HOURS || minutes > 59)
		return false;
	out->zone = (int) (hours * 3600 + minutes * 60);
	if (*p == '-')
		out->zone = -out->zone;
	return true;
}

bool
timestamp_read(const char *p, size_t len, TimestampText *out)
{
	const char *end = p + len;
	unsigned hour, minute, second;

	if (len < 19 || (p[10] != 'T' && p[10] != ' ') || p[13] != ':' || p[16] != ':' || !read_date(p, out))
		return false;
	hour = two_digits(p + 11);
	minute = two_digits(p + 14);
	second = two_digits(p + 17);
	if (hour > 23 || minute > 59 || second > 59) /* 24:00 and leap seconds are not plain */
		return false;
	out->hour = hour;
	out->minute = minute;
	out->second = second;
	out->microsecond = 0;
	p += 19;
	if (p < end && *p == '.')
	{
		const char *first = ++p;
		int32_t fraction = 0;

		for (; p < end && (unsigned char) (*p - '0') <= 9; p++)
		{
			if (p - first == 9)
				return false;
			fraction = fraction * 10 + (*p - '0');
		}
		if (p == first)
			return false;
		out->microsecond = (int) rint((double) fraction / fraction_unit[p - first] * 1000000);
	}
	return read_zone(p, end, out);
}

bool
timestamp_read_date(const char *p, size_t len, int32_t *days)
{
	TimestampText text;

	if (len != 10 || !read_date(p, &text))
		return false;
	*days = text.days;
	return true;
}

int64_t
timestamp_local(const TimestampText *text)
{
	int64_t seconds = (int64_t) text->days * SECONDS_PER_DAY + text->hour * 3600 + text->minute * 60 + text->second;

	return seconds * MICROSECONDS_PER_SECOND + text->microsecond;
}

bool
timestamp_read_epoch(const char *p, size_t len, int shift, int64_t *out)
{
	Decimal number;
	int up;
	int64_t value;

	if (!number_read_decimal(p, len, &number))
		return false;
	up = shift - number.scale;
	if (up >= 0)
	{
		if (__builtin_mul_overflow(number.mantissa, int_power[up], &value))
			return false;
	}
	else if (up < -18)
		return false;
	else
	{
		int64_t unit = int_power[-up], rest;

		value = number.mantissa / unit;
		rest = number.mantissa % unit;
		if (rest < 0)
			rest = -rest;
		if (rest > unit - rest || (rest == unit - rest && value % 2 != 0))
			value += number.negative ? -1 : 1;
	}
	return !__builtin_sub_overflow(value, EPOCH_DAYS * SECONDS_PER_DAY * MICROSECONDS_PER_SECOND, out);
}
