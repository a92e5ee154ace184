/* Decodes a request message, and gives access to its variables and body. */
#include "ipc/request_decode.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/persistent_map.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "ipc/fastcgi.h"

struct surus_request *surus_request;
unsigned char *surus_request_message;

bool surus_request_create(void)
{
	surus_request = surus_persistent_alloc(sizeof(*surus_request));
	surus_request_message = surus_persistent_alloc(SURUS_MESSAGE_MAX + 1);
	if (!surus_request || !surus_request_message) {
		return false;
	}
	surus_request->body_fd = -1;
	return true;
}

static uint64_t get_u64(const unsigned char *from)
{
	uint64_t value = 0;
	for (int i = 0; i < 8; i++) {
		value = value << 8 | from[i];
	}
	return value;
}

/* Reads the length of a name or value: one byte, or four if the first has its high bit set. */
static bool get_length(const unsigned char **at, const unsigned char *end, uint32_t *len)
{
	const unsigned char *p = *at;

	if (p < end && p[0] < 0x80) {
		*len = p[0];
		*at = p + 1;
		return true;
	}
	if (end - p < 4) {
		return false;
	}
	*len = (uint32_t)(p[0] & 0x7f) << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
	*at = p + 4;
	return true;
}

/* Decodes the name-value pairs of one PARAMS record. Surus never splits a pair between records. */
static const char *decode_params(struct surus_request *request, unsigned char *at,
        unsigned char *end)
{
	while (at < end) {
		const unsigned char *p = at;
		uint32_t name_len, value_len;

		if (!get_length(&p, end, &name_len) || !get_length(&p, end, &value_len)) {
			return "a length is cut off";
		}
		if ((uint64_t)name_len + value_len > (uint64_t)(end - p)) {
			return "a name or value is longer than its record";
		}
		if (request->var_count == SURUS_MAX_VARS) {
			return "too many variables";
		}
		struct surus_var *var = &request->vars[request->var_count++];
		var->name = (const char *)p;
		var->name_len = name_len;
		var->value = (char *)at + (p - at) + name_len;
		var->value_len = value_len;
		at = (unsigned char *)var->value + value_len;
	}
	return NULL;
}

const char *surus_request_parse(struct surus_request *request, size_t len)
{
	unsigned char *at = surus_request_message, *end = at + len;
	char *body_end = NULL;

	while (at < end) {
		if (end - at < FCGI_HEADER_LEN) {
			return "a record header is cut off";
		}
		uint32_t content_len = (uint32_t)at[4] << 8 | at[5];
		enum surus_record_type type = at[1];
		uint16_t id = (uint16_t)(at[2] << 8 | at[3]);
		uint32_t padding = at[6];
		unsigned char *content = at + FCGI_HEADER_LEN;

		if (at[0] != FCGI_VERSION_1 || (uint64_t)content_len + padding >
		        (uint64_t)(end - content)) {
			return "a record is cut off";
		}
		switch (type) {
			case SURUS_REQUEST: {
				if (content_len != sizeof(struct surus_request_record)) {
					return "a REQUEST record has a wrong length";
				}
				const struct surus_request_record *record = (const void *)content;
				request->id = id;
				request->deadline = get_u64(record->deadline);
				request->body_len = get_u64(record->body_len);
				request->batches = record->batches;
				request->tag = fcgi_get_u32(record->tag);
				break;
			}
			case FCGI_PARAMS: {
				const char *error = decode_params(request, content, content + content_len);
				if (error) {
					return error;
				}
				break;
			}
			case FCGI_STDIN:
				if (!body_end) {
					request->body = body_end = (char *)content;
				} else {
					/* Several records contain one body: close the gap of the header between
					 * them. */
					memmove(body_end, content, content_len);
				}
				body_end += content_len;
				break;
			default:
				return "unexpected record type";
		}
		at = content + content_len + padding;
	}
	if (request->id == 0 || request->id >= surus_settings.slots) {
		return "no valid request id";
	}
	if (request->body_fd < 0 && request->body_len !=
	        (body_end ? (uint64_t)(body_end - request->body) : 0)) {
		return "the body's length differs from the announced one";
	}
	/* All lengths have been read, so the byte after each value can become its NUL. */
	for (uint32_t i = 0; i < request->var_count; i++) {
		request->vars[i].value[request->vars[i].value_len] = '\0';
	}
	return NULL;
}

void surus_request_clear(struct surus_request *request)
{
	request->id = 0;
	request->tag = 0;
	request->ticket = 0;
	request->deadline = 0;
	request->body_len = 0;
	request->body_read = 0;
	request->is_body_cut = false;
	request->body = NULL;
	request->body_fd = -1;
	request->var_count = 0;
}

bool surus_request_decode(struct surus_request *request, size_t len)
{
	surus_request_clear(request);
	const char *error = surus_request_parse(request, len);
	if (error) {
		fprintf(stderr, "surus-php: malformed message: %s\n", error);
		request->id = 0;
	}
	return error == NULL;
}

char *surus_request_var(const struct surus_request *request, const char *name, size_t name_len)
{
	for (uint32_t i = 0; i < request->var_count; i++) {
		if (request->vars[i].name_len == name_len &&
		        memcmp(request->vars[i].name, name, name_len) == 0) {
			return request->vars[i].value;
		}
	}
	return NULL;
}

size_t surus_request_read_body(struct surus_request *request, char *buffer, size_t count)
{
	uint64_t left = request->body_len - request->body_read;
	size_t done = 0;

	if (count > left) {
		count = (size_t)left;
	}
	if (count == 0) {
		return 0;
	}
	if (request->body_fd < 0) {
		memcpy(buffer, request->body + request->body_read, count);
		done = count;
	}
	while (done < count) {
		/* pread(), because the descriptor's offset is shared with the next worker if the request is
		 * retried. */
		ssize_t got = pread(request->body_fd, buffer + done, count - done,
		        (off_t)(request->body_read + done));
		if (got < 0 && errno == ESPIPE) {
			/* A pipe: the body is still arriving. */
			got = read(request->body_fd, buffer + done, count - done);
		}
		if (got < 0 && errno == EINTR) {
			continue;
		}
		if (got <= 0) {
			request->is_body_cut = true;
			break;
		}
		done += (size_t)got;
	}
	request->body_read += done;
	return done;
}

void surus_request_close(struct surus_request *request)
{
	if (request->body_fd >= 0) {
		close(request->body_fd);
		request->body_fd = -1;
	}
	request->id = 0;
	request->ticket = 0;
}
