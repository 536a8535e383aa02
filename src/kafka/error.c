/*
 * error.c: what librdkafka says went wrong, in Postgres's terms: a hint for its words, a SQLSTATE for its codes.
 */
#include "postgres.h"

#include <librdkafka/rdkafka.h>

#include "kafka/client.h"

#define TLS_HINT "Perhaps the brokers speak TLS at that address: set security.protocol of the server to \"ssl\", with a password \"sasl_ssl\"."
#define NO_TLS_HINT \
	"Perhaps the brokers do not speak TLS at that address: use that of their TLS listener, or set security.protocol of the server to " \
	"\"plaintext\", with a password \"sasl_plaintext\"."
#define ADVERTISED_HINT \
	"The brokers gave that address themselves: start the one there, or correct its advertised.listeners if it is not to be reached so from here."

/*
 * What to do about a complaint: librdkafka's words for it, as of 1.0 and later. An address that is not one of bootstrap.servers
 * ("host:port/bootstrap") came from the brokers.
 */
int
kafka_complaint_hint(const char *complaint)
{
	static const struct
	{
		const char *words, *also, *hint;
	} advice[] = {
		{"ssl.ca.location", "",
		 "Put the certificate that signed the broker's, as PEM text, into option \"ssl.ca.pem\" of the server; the broker's own must name "
		 "the host as it is addressed."},
		{"SSL listener", "", TLS_HINT},
		{"brokers are down", "", TLS_HINT}, /* they hang up, and librdkafka 2.14 does not guess why */
		{"PLAINTEXT broker listener", "", NO_TLS_HINT},
		{"SSL handshake failed", "unexpected eof", NO_TLS_HINT},
		/* Without a guess, when the connection is reset. */
		{"Disconnected", "in state APIVERSION_QUERY", TLS_HINT},
		{"Connection reset", "in state APIVERSION_QUERY", TLS_HINT},
		{"Disconnected", "in state SSL_HANDSHAKE", NO_TLS_HINT},
		{"Connection reset", "in state SSL_HANDSHAKE", NO_TLS_HINT},
		{"SASL authentication error", "", "Correct sasl.username and sasl.password of the user mapping (ALTER USER MAPPING)."},
		{"mechanism", "Unsupported SASL mechanism", "Set \"sasl.mechanism\" of the server to one that the brokers support."},
		{"broker might require SASL", "",
		 "Perhaps the brokers want a password at that address: set security.protocol of the server to \"sasl_ssl\", without TLS "
		 "\"sasl_plaintext\", and sasl.mechanism."},
		{"Failed to resolve", "/bootstrap", "Correct \"bootstrap.servers\" of the server."},
		{"Connection refused", "/bootstrap", "Nothing listens there: correct \"bootstrap.servers\" of the server, or start the broker."},
		{"Failed to resolve", "", ADVERTISED_HINT},
		{"Connection refused", "", ADVERTISED_HINT},
	};

	for (int i = 0; i < lengthof(advice); i++)
		if (strstr(complaint, advice[i].words) && strstr(complaint, advice[i].also))
			return errhint("%s", advice[i].hint);
	return 0;
}

int
kafka_sqlstate(int code)
{
	switch ((rd_kafka_resp_err_t) code)
	{
		case RD_KAFKA_RESP_ERR__AUTHENTICATION:
		case RD_KAFKA_RESP_ERR__SSL:
		case RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED:
		case RD_KAFKA_RESP_ERR_UNSUPPORTED_SASL_MECHANISM:
			return ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION;
		case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
		case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
		case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
		case RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
			return ERRCODE_INSUFFICIENT_PRIVILEGE;
		case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
		case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
		case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
		case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
			return ERRCODE_UNDEFINED_OBJECT;
		case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
		case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
			return ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
		default:
			return ERRCODE_CONNECTION_FAILURE;
	}
}
