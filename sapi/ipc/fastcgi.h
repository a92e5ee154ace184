/* FastCGI's records: https://fastcgi-archives.github.io/FastCGI_Specification.html, section 3.3,
 * and three of our own. */
#ifndef SURUS_FASTCGI_H
#define SURUS_FASTCGI_H

#include <stdint.h>

enum surus_record_type {
	FCGI_BEGIN_REQUEST = 1,
	FCGI_END_REQUEST = 3,
	FCGI_PARAMS = 4,
	FCGI_STDIN = 5,
	FCGI_STDOUT = 6,
	FCGI_STDERR = 7,
	SURUS_EVENT = 128,       /* first in every event of the inbox: struct surus_event_record */
	SURUS_EARLY_HINTS = 129, /* header lines of a 103 response */
	/* first of what a worker says of an event: proof that it has claimed it (scoreboard.h) */
	SURUS_TICKET = 130,
};

enum { FCGI_VERSION_1 = 1, FCGI_HEADER_LEN = 8, FCGI_MAX_CONTENT = 65535 };

/* The content of an EVENT record, big-endian. */
struct surus_event_record {
	unsigned char deadline[8], body_len[8]; /* as in struct surus_event */
	/* the place of the worker that the message was sent to wake, and 1; or 0. Such four bytes alone
	 * are a message, too: that there is something in the ring */
	unsigned char wakes[4];
	unsigned char one_of_many; /* surus has other events in hand, and not because they take long */
	unsigned char tag[4];      /* the lower half of the event's ticket (scoreboard.h) */
};

/* Writes the eight bytes that precede a record's content. */
static inline void fcgi_put_header(unsigned char *to, enum surus_record_type type, uint16_t id,
        uint32_t len)
{
	to[0] = FCGI_VERSION_1;
	to[1] = (unsigned char)type;
	to[2] = (unsigned char)(id >> 8);
	to[3] = (unsigned char)id;
	to[4] = (unsigned char)(len >> 8);
	to[5] = (unsigned char)len;
	to[6] = 0; /* padding */
	to[7] = 0;
}

static inline uint32_t fcgi_get_u32(const unsigned char *from)
{
	return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

#endif
