/* Decodes a request message, and gives access to its variables and body. */
#include "ipc/request_decode.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/persistent_map.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "ipc/fastcgi.h"

struct surus_event *surus_request;
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

/* Reads the length of a name or value: one byte, or four when the first has its high bit set. */
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

/* Decodes the name-value pairs of one PARAMS record; a pair never crosses records in our inbox. */
static const char *decode_params(struct surus_event *event, unsigned char *at, unsigned char *end)
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
		if (event->var_count == SURUS_MAX_VARS) {
			return "too many variables";
		}
		struct surus_var *var = &event->vars[event->var_count++];
		var->name = (const char *)p;
		var->name_len = name_len;
		var->value = (char *)at + (p - at) + name_len;
		var->value_len = value_len;
		at = (unsigned char *)var->value + value_len;
	}
	return NULL;
}

const char *surus_event_parse(struct surus_event *event, size_t len)
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
			case SURUS_EVENT: {
				if (content_len != sizeof(struct surus_event_record)) {
					return "an event record has another length than it should have";
				}
				const struct surus_event_record *record = (const void *)content;
				event->id = id;
				event->deadline = get_u64(record->deadline);
				event->body_len = get_u64(record->body_len);
				event->is_one_of_many = record->one_of_many;
				event->tag = fcgi_get_u32(record->tag);
				break;
			}
			case FCGI_PARAMS: {
				const char *error = decode_params(event, content, content + content_len);
				if (error) {
					return error;
				}
				break;
			}
			case FCGI_STDIN:
				if (!body_end) {
					event->body = body_end = (char *)content;
				} else {
					/* Several records carry one body: close the gap that the header has left. */
					memmove(body_end, content, content_len);
				}
				body_end += content_len;
				break;
			default:
				return "a record of a type that no event has";
		}
		at = content + content_len + padding;
	}
	if (event->id == 0 || event->id >= surus_settings.requests) {
		return "no valid request id";
	}
	if (event->body_fd < 0 && event->body_len !=
	        (body_end ? (uint64_t)(body_end - event->body) : 0)) {
		return "the body has another length than announced";
	}
	/* Now that every length has been read, the byte behind each value is free to end it. */
	for (uint32_t i = 0; i < event->var_count; i++) {
		event->vars[i].value[event->vars[i].value_len] = '\0';
	}
	return NULL;
}

/* Forgets everything of the event before. */
void surus_event_clear(struct surus_event *event)
{
	event->id = 0;
	event->tag = 0;
	event->ticket = 0;
	event->deadline = 0;
	event->body_len = 0;
	event->body_read = 0;
	event->body = NULL;
	event->body_fd = -1;
	event->var_count = 0;
}

bool surus_event_decode(struct surus_event *event, size_t len)
{
	surus_event_clear(event);
	const char *error = surus_event_parse(event, len);
	if (error) {
		fprintf(stderr, "surus-php: malformed message: %s\n", error);
		event->id = 0;
	}
	return error == NULL;
}

char *surus_event_var(const struct surus_event *event, const char *name, size_t name_len)
{
	for (uint32_t i = 0; i < event->var_count; i++) {
		if (event->vars[i].name_len == name_len &&
		        memcmp(event->vars[i].name, name, name_len) == 0) {
			return event->vars[i].value;
		}
	}
	return NULL;
}

size_t surus_event_read_body(struct surus_event *event, char *buffer, size_t count)
{
	uint64_t left = event->body_len - event->body_read;
	size_t done = 0;

	if (count > left) {
		count = (size_t)left;
	}
	if (count == 0) {
		return 0;
	}
	if (event->body_fd < 0) {
		memcpy(buffer, event->body + event->body_read, count);
		done = count;
	}
	while (done < count) {
		/* The file is read at our own offset: a retried event's next worker shares the
		 * descriptor's. */
		ssize_t got = pread(event->body_fd, buffer + done, count - done,
		        (off_t)(event->body_read + done));
		if (got < 0 && errno == EINTR) {
			continue;
		}
		if (got <= 0) {
			break;
		}
		done += (size_t)got;
	}
	event->body_read += done;
	return done;
}

void surus_event_close(struct surus_event *event)
{
	if (event->body_fd >= 0) {
		close(event->body_fd);
		event->body_fd = -1;
	}
	event->id = 0;
	event->ticket = 0;
}
