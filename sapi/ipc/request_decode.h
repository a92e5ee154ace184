/* Decodes a request message, and gives access to its variables and body. */
#ifndef SURUS_IPC_REQUEST_DECODE_H
#define SURUS_IPC_REQUEST_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/scoreboard_layout.h"

struct surus_var {
	const char *name; /* not NUL-terminated */
	uint32_t name_len;
	uint32_t value_len;
	char *value; /* NUL-terminated */
};

enum { SURUS_MAX_VARS = 1024, SURUS_MESSAGE_MAX = 256 * 1024 };

struct surus_event {
	uint16_t id;         /* FastCGI request id; 0 when there is no event */
	uint32_t tag;        /* the lower half of its ticket */
	uint64_t ticket;     /* once this worker has claimed it (scoreboard.h); 0 before */
	uint64_t deadline;   /* CLOCK_MONOTONIC in microseconds; 0 means none */
	uint64_t body_len;
	uint64_t body_read;
	const char *body;    /* the body, when it came in the message */
	int body_fd;         /* the body, when it came as a file; else -1 */
	bool is_one_of_many; /* other requests are in flight */
	uint32_t var_count;
	struct surus_var vars[SURUS_MAX_VARS];
};

/* The request in the hands of this process; id 0 where there is none. Not restored by a rewind. */
extern struct surus_event *surus_request;
/* The message that it was decoded from, and borrows. One byte more than a message may have: the
 * last value gets its NUL there. */
extern unsigned char *surus_request_message;

/* In the template, before anything is forked. False: no memory. */
bool surus_request_create(void);

/* Makes it no request, without closing anything. */
void surus_event_clear(struct surus_event *event);

/* As surus_event_decode, without clearing first. NULL, or what is malformed. */
const char *surus_event_parse(struct surus_event *event, size_t len);

/* Decodes the message of `len` bytes that lies in surus_request_message. False: malformed, said on
 * stderr. */
bool surus_event_decode(struct surus_event *event, size_t len);

/* The value of a CGI variable, or NULL. */
char *surus_event_var(const struct surus_event *event, const char *name, size_t name_len);

#define SURUS_VAR(event, literal) surus_event_var(event, literal, sizeof(literal) - 1)

/* Reads on in the body; returns the number of bytes, 0 at its end. */
size_t surus_event_read_body(struct surus_event *event, char *buffer, size_t count);

void surus_event_close(struct surus_event *event);

#endif
