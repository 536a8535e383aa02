/* http.h: GET from a URL, without blocking interrupts. */
#ifndef STREAM_KAFKA_HTTP_H
#define STREAM_KAFKA_HTTP_H

#include "postgres.h"

typedef struct HttpRequest
{
	const char *url;
	const char *user, *password; /* NULL: none */
	const char *ca_pem;			 /* certificates to trust instead of the system's; NULL */
	const char *accept;
} HttpRequest;

extern bool http_is_built(void);
/* The answer's body (palloc'ed, zero-ended) and status. NULL: no answer; *why says why. */
extern char *http_get(const HttpRequest *request, long *status, const char **why);

#endif
