/*
 * http.c: one GET at a time through libcurl, on a connection that is kept. Waiting serves interrupts; time-outs bound it.
 * Danger: libcurl's threads (name resolution) inherit the signal mask, so signals are blocked while it works; its callbacks run here, but must not
 * raise errors through it: the body is collected by malloc.
 */
#include "kafka/http.h"

#include "miscadmin.h"

#ifdef STREAM_CURL

#include <curl/curl.h>
#include <pthread.h>
#include <signal.h>

#include "storage/ipc.h"
#include "storage/pmsignal.h"

#define CONNECT_MS 5000
#define TOTAL_MS 10000
#define STEP_MS 50 /* between looks at interrupts */
#define MAX_BODY (8 * 1024 * 1024)

typedef struct Body
{
	char *data; /* malloc */
	size_t len, room;
} Body;

static CURLM *multi;
static CURL *easy;
static bool busy; /* a request was left in mid-course by an error */
static Body body;
static char error_text[CURL_ERROR_SIZE];

bool
http_is_built(void)
{
	return true;
}

static size_t
body_take(char *data, size_t size, size_t count, void *arg)
{
	size_t n = size * count;

	if (n > MAX_BODY - body.len)
		return 0;
	if (body.len + n + 1 > body.room)
	{
		size_t room = (body.len + n + 1) * 2;
		char *grown = realloc(body.data, room);

		if (grown == NULL)
			return 0;
		body.data = grown;
		body.room = room;
	}
	memcpy(body.data + body.len, data, n);
	body.len += n;
	return n;
}

static void
handles_make(void)
{
	if (multi == NULL && curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK)
		multi = curl_multi_init();
	if (busy)
	{
		curl_multi_remove_handle(multi, easy);
		curl_easy_cleanup(easy);
		easy = NULL;
		busy = false;
	}
	if (multi && easy == NULL)
		easy = curl_easy_init();
	if (easy == NULL)
		ereport(ERROR, errcode(ERRCODE_OUT_OF_MEMORY), errmsg("could not prepare an HTTP request"));
}

/* No redirects, proxies or other protocols: the request, and the password in it, goes to the host that was named. */
static void
request_set(const HttpRequest *request, struct curl_slist *headers)
{
	curl_easy_reset(easy);
	curl_easy_setopt(easy, CURLOPT_URL, request->url);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long) CONNECT_MS);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long) TOTAL_MS);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "stream_ext");
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, body_take);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, error_text);
	if (request->user)
	{
		curl_easy_setopt(easy, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
		curl_easy_setopt(easy, CURLOPT_USERNAME, request->user);
		curl_easy_setopt(easy, CURLOPT_PASSWORD, request->password ? request->password : "");
	}
	if (request->ca_pem)
	{
		struct curl_blob pem = {(void *) request->ca_pem, strlen(request->ca_pem), CURL_BLOB_COPY};

		curl_easy_setopt(easy, CURLOPT_CAINFO_BLOB, &pem);
	}
}

static CURLMcode
perform(int *running)
{
	sigset_t all, before;
	CURLMcode code;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	code = curl_multi_perform(multi, running);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return code;
}

static CURLcode
run(void)
{
	CURLMsg *message;
	CURLcode result = CURLE_FAILED_INIT;
	int running = 1, left;

	while (perform(&running) == CURLM_OK && running > 0)
	{
		curl_multi_poll(multi, NULL, 0, STEP_MS, NULL);
		if (IsUnderPostmaster && !PostmasterIsAlive())
			proc_exit(1);
		CHECK_FOR_INTERRUPTS();
	}
	while ((message = curl_multi_info_read(multi, &left)) != NULL)
		if (message->msg == CURLMSG_DONE)
			result = message->data.result;
	return result;
}

char *
http_get(const HttpRequest *request, long *status, const char **why)
{
	struct curl_slist *headers;
	CURLcode result;

	handles_make();
	headers = curl_slist_append(NULL, psprintf("Accept: %s", request->accept));
	request_set(request, headers);
	body.len = 0;
	error_text[0] = '\0';
	busy = true;
	curl_multi_add_handle(multi, easy);
	result = run();
	curl_multi_remove_handle(multi, easy);
	curl_slist_free_all(headers);
	busy = false;
	if (result != CURLE_OK)
	{
		*why = pstrdup(error_text[0] ? error_text : curl_easy_strerror(result));
		return NULL;
	}
	curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, status);
	return body.len > 0 ? pnstrdup(body.data, body.len) : pstrdup("");
}

#else

bool
http_is_built(void)
{
	return false;
}

char *
http_get(const HttpRequest *request, long *status, const char **why)
{
	*why = "built without libcurl";
	return NULL;
}

#endif
