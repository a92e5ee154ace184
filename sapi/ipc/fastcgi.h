/* FastCGI records (https://fastcgi-archives.github.io/FastCGI_Specification.html, section 3.3) and
 * three record types of Surus. */
#ifndef SURUS_IPC_FASTCGI_H
#define SURUS_IPC_FASTCGI_H

#include <stdint.h>

enum surus_record_type {
	FCGI_BEGIN_REQUEST = 1,
	FCGI_END_REQUEST = 3,
	FCGI_PARAMS = 4,
	FCGI_STDIN = 5,
	FCGI_STDOUT = 6,
	FCGI_STDERR = 7,
	SURUS_REQUEST = 128, /* first in every request message: struct surus_request_record */
	SURUS_EARLY_HINTS = 129, /* header lines of a 103 response */
	/* first record about a request: proof that the worker has claimed it (scoreboard_layout.h) */
	SURUS_TICKET = 130,
};

enum { FCGI_VERSION_1 = 1, FCGI_HEADER_LEN = 8, FCGI_MAX_CONTENT = 65535 };

/* The content of a REQUEST record, big-endian. Rust calls the type EVENT. */
struct surus_request_record {
	unsigned char deadline[8], body_len[8]; /* as in struct surus_request */
	unsigned char batches; /* requests arrive together; see inbox.c */
	unsigned char tag[4]; /* the lower half of the request's ticket (scoreboard_layout.h) */
};

/* Writes the header that precedes a record's content. */
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
