/*
 * number.c: text of a number → int64, double, float, decimal.
 * A double is exact where mantissa and power of ten are doubles themselves (Clinger's fast path): one rounding, the right one.
 */
#include "format/number.h"

#include <float.h>

#define MAX_DIGITS 18

static const double power_of_ten[] = {1e0,	1e1,  1e2,	1e3,  1e4,	1e5,  1e6,	1e7,  1e8,	1e9,  1e10, 1e11,
									  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Like number_read_decimal, but with `scientific` an exponent is taken too and lowers the scale. */
static bool
read_number(const char *p, const char *end, bool scientific, Decimal *out)
{
	uint64_t mantissa = 0;
	int digits = 0, scale = 0, exponent = 0;
	const char *first;

	out->negative = p < end && *p == '-';
	if (out->negative)
		p++;
	for (first = p; p < end && (unsigned char) (*p - '0') <= 9; p++)
	{
		mantissa = mantissa * 10 + (unsigned char) (*p - '0');
		digits += mantissa != 0;
		if (digits > MAX_DIGITS)
			return false;
	}
	if (p == first)
		return false;
	if (p < end && *p == '.')
	{
		for (first = ++p; p < end && (unsigned char) (*p - '0') <= 9; p++)
		{
			mantissa = mantissa * 10 + (unsigned char) (*p - '0');
			digits += mantissa != 0;
			if (digits > MAX_DIGITS || p - first >= 1000)
				return false;
		}
		scale = (int) (p - first);
		if (scale == 0)
			return false;
	}
	if (scientific && p < end && (*p == 'e' || *p == 'E'))
	{
		bool down;

		p++;
		down = p < end && *p == '-';
		if (p < end && (*p == '-' || *p == '+'))
			p++;
		if (p == end || end - p > 3)
			return false;
		for (; p < end && (unsigned char) (*p - '0') <= 9; p++)
			exponent = exponent * 10 + (*p - '0');
		if (down)
			exponent = -exponent;
	}
	out->mantissa = out->negative ? -(int64_t) mantissa : (int64_t) mantissa;
	out->digits = digits;
	out->scale = scale - exponent;
	return p == end;
}

bool
number_read_decimal(const char *p, size_t len, Decimal *out)
{
	return read_number(p, p + len, false, out);
}

bool
number_read_int64(const char *p, size_t len, int64_t *out)
{
	const char *end = p + len;
	bool negative = len > 0 && *p == '-';
	uint64_t value = 0;

	p += negative;
	if (p == end || end - p > 18)
		return false;
	for (; p < end; p++)
	{
		unsigned digit = (unsigned char) (*p - '0');

		if (digit > 9)
			return false;
		value = value * 10 + digit;
	}
	*out = negative ? -(int64_t) value : (int64_t) value;
	return true;
}

bool
number_read_double(const char *p, size_t len, double *out)
{
#if FLT_EVAL_METHOD == 0
	Decimal decimal;
	double value;

	if (!read_number(p, p + len, true, &decimal) || decimal.mantissa > (INT64_C(1) << 53) ||
		decimal.mantissa < -(INT64_C(1) << 53) || decimal.scale > 22 || decimal.scale < -22)
		return false;
	value = (double) decimal.mantissa;
	value = decimal.scale >= 0 ? value / power_of_ten[decimal.scale] : value * power_of_ten[-decimal.scale];
	*out = decimal.negative && decimal.mantissa == 0 ? -0.0 : value;
	return true;
#else
	return false;
#endif
}

bool
number_read_float(const char *p, size_t len, float *out)
{
#if FLT_EVAL_METHOD == 0
	Decimal decimal;
	float value;

	if (!read_number(p, p + len, true, &decimal) || decimal.mantissa > (1 << 24) || decimal.mantissa < -(1 << 24) ||
		decimal.scale > 10 || decimal.scale < -10)
		return false;
	value = (float) decimal.mantissa;
	value =
		decimal.scale >= 0 ? value / (float) power_of_ten[decimal.scale] : value * (float) power_of_ten[-decimal.scale];
	*out = decimal.negative && decimal.mantissa == 0 ? -0.0f : value;
	return true;
#else
	return false;
#endif
}
