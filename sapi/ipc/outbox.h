/* Sends a worker's responses to Surus, as FastCGI records through the response ring or socket. */
#ifndef SURUS_IPC_OUTBOX_H
#define SURUS_IPC_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/request_decode.h"

enum surus_outcome {
	SURUS_COMPLETE = 0, /* FCGI_REQUEST_COMPLETE */
	/* FCGI_OVERLOADED: dropped before its script started, because the client had closed it or this
	 * worker could not take it */
	SURUS_NOT_BEGUN = 2,
};

/* In the master process, before the first fork. False: no memory. */
bool surus_outbox_create(void);

void surus_outbox_open(int fd);

/* In a script's child, which has no outbox from here on. */
void surus_outbox_leave(void);

/* While on, everything is discarded: a warm-up has no client. */
void surus_outbox_discard(bool on);

/* Begins the response to the current request. */
void surus_outbox_begin(const struct surus_request *request);

/* Appends to the response. False: it could not be sent, and the client counts as closed. */
bool surus_outbox_write(const char *data, size_t len);

/* Sends what is buffered. */
bool surus_outbox_flush(void);

/* Ends the response but not the request: the client has everything, PHP continues. */
bool surus_outbox_finish(void);

/* Ends the request, and the response if it has not ended. `includes`: files that it has included
 * in a booted application. SURUS_NOT_BEGUN goes through the socket, which no other process can
 * write to; Surus then gives the request to another worker. */
void surus_outbox_end(enum surus_outcome outcome, uint32_t includes);

/* Sends one log message of any length; complete lines. */
void surus_outbox_log(const char *message, size_t len);

/* Sends header lines as an informational response (103). */
bool surus_outbox_hints(const char *headers, size_t len);

/* Whether Surus has closed its end. */
bool surus_outbox_is_closed(void);
/* Whether there should be fewer workers, so that this one exits: Surus has closed its sending end
 * of the worker's socket, which no other worker has. */
bool surus_outbox_is_released(void);

#endif
