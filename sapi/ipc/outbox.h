/* What a worker says to surus: FastCGI records on a stream socket of its own. A small answer, its
 * head, its body and its */
#ifndef SURUS_IPC_OUTBOX_H
#define SURUS_IPC_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>

#include "ipc/request_decode.h"

enum surus_outcome {
	SURUS_COMPLETE = 0,  /* FCGI_REQUEST_COMPLETE */
	/* FCGI_OVERLOADED: dropped before any PHP ran, because nobody waits for it or this worker
	 * cannot have it */
	SURUS_NOT_BEGUN = 2,
};

/* In the template, before anything is forked. False: no memory. */
bool surus_outbox_create(void);

void surus_outbox_open(int fd);

/* In a script's child: from here on there is none. */
void surus_outbox_leave(void);

/* While on, what is said goes nowhere: a warm-up has no client. */
void surus_outbox_discard(bool on);

/* Begins the answer to the event in our hands. */
void surus_outbox_begin(const struct surus_event *event);

/* Appends to the response. False: it could not be sent, and the client counts as gone. */
bool surus_outbox_write(const char *data, size_t len);

/* Sends what has been collected. */
bool surus_outbox_flush(void);

/* Ends the response but not the event: the client has its answer, PHP goes on. */
bool surus_outbox_finish(void);

/* Ends the event, and the response if it has not ended. That it was not begun for want of a
 * descriptor is said by the socket, which no other process can write to: surus then gives the
 * request to another worker. */
void surus_outbox_end(enum surus_outcome outcome, int exit_status);

/* Has the response ended, or the event? */
bool surus_outbox_response_ended(void);

/* Sends one log message, of any length; complete lines. */
void surus_outbox_log(const char *message, size_t len);

/* Sends header lines as an informational (103) response. */
bool surus_outbox_hints(const char *headers, size_t len);

/* Has surus closed its end? */
bool surus_outbox_hung_up(void);

#endif
