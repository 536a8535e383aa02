/* pem.h: certificates and keys given as text. */
#ifndef STREAM_KAFKA_PEM_H
#define STREAM_KAFKA_PEM_H

#include "postgres.h"

/* Refuses a value of an option named *.pem that does not hold whole certificates, or a whole key (*.key.pem). Its text is never repeated. */
extern void pem_check(const char *option, const char *value);

#endif
