/* Decodes a request message and gives access to its variables and body. */
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

struct surus_request {
	uint16_t id; /* FastCGI's request id: the number of its slot; 0 if there is no request */
	uint32_t tag; /* the lower half of its ticket */
	/* its ticket, once this worker has claimed it (scoreboard_layout.h); 0 before */
	uint64_t ticket;
	uint64_t deadline; /* in microseconds of CLOCK_MONOTONIC; 0: none */
	uint64_t body_len;
	uint64_t body_read;
	const char *body; /* the body, if it came in the message */
	int body_fd; /* the body, if it came as a file, or a pipe that it arrives by; else -1 */
	bool is_body_cut; /* the client has not sent all of it */
	bool batches; /* requests arrive together; see inbox.c */
	uint32_t var_count;
	struct surus_var vars[SURUS_MAX_VARS];
};

/* The current request of this process; id 0 if there is none. In persistent memory. */
extern struct surus_request *surus_request;
/* The message that it was decoded from and borrows. One byte longer than a message, because the
 * last value gets its NUL there. */
extern unsigned char *surus_request_message;

/* In the master process, before the first fork. False: no memory. */
bool surus_request_create(void);

/* Resets it to no request; closes nothing. */
void surus_request_clear(struct surus_request *request);

/* As surus_request_decode, without the reset. NULL, or what is malformed. */
const char *surus_request_parse(struct surus_request *request, size_t len);

/* Decodes the message of `len` bytes in surus_request_message. False: malformed; said on stderr. */
bool surus_request_decode(struct surus_request *request, size_t len);

/* The value of a CGI variable, or NULL. */
char *surus_request_var(const struct surus_request *request, const char *name, size_t name_len);

#define SURUS_VAR(request, literal) surus_request_var(request, literal, sizeof(literal) - 1)

/* Reads the next part of the body. Returns the number of bytes; 0 at the end. */
size_t surus_request_read_body(struct surus_request *request, char *buffer, size_t count);

void surus_request_close(struct surus_request *request);

#endif
