/* What a worker says to surus: FastCGI records on a stream socket of its own. A small answer, its
 * head, its body and its end, is collected and leaves in one piece: as a letter in the ring, or in
 * one system call. */
#include "ipc/outbox.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/exit_status.h"
#include "base/persistent_map.h"
#include "base/process_state.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "base/syscall_gate.h"
#include "ipc/fastcgi.h"
#include "ipc/request_decode.h"
#include "ipc/request_status.h"
#include "ipc/rings.h"

enum {
	CAPACITY = 32 * 1024,
	END_LEN = FCGI_HEADER_LEN + 8,
	TICKET_LEN = FCGI_HEADER_LEN + 8,
	/* where in the buffer is the header of what is collected */
	HEADER = TICKET_LEN,
	CONTENT = HEADER + FCGI_HEADER_LEN,  /* and what is collected */
};

/* Not restored by a rewind. */
static struct outbox {
	int fd;
	/* in memory that every fork finds empty, also one that libc does not know of */
	bool *is_ours;
	uint16_t request;
	bool response_ended;
	bool has_spoken;  /* of this event, by the socket */
	uint64_t ticket;  /* of this event */
	bool ticket_said; /* surus has it, or it is on its way */
	size_t collected; /* bytes of content behind the first header */
	/* The TICKET record, the header of the STDOUT record that is being collected, its content, and
	 * the END_REQUEST behind it. */
	unsigned char buffer[CAPACITY + 64];
} *out;
_Static_assert(sizeof(out->buffer) >= CONTENT + CAPACITY + FCGI_HEADER_LEN + END_LEN,
        "room for all records");

bool surus_outbox_create(void)
{
	out = surus_persistent_alloc(sizeof(*out));
	if (!out) {
		return false;
	}
	out->fd = -1;
	/* A mapping of its own, as the kernel wipes whole pages. */
	out->is_ours = surus_exempt_map(sizeof(*out->is_ours));
	if (!out->is_ours) {
		return false;
	}
	/* Not every kernel has it, nor what stands in for one; without it there is one defence less. */
	madvise(out->is_ours, sizeof(*out->is_ours), MADV_WIPEONFORK);
	return true;
}

void surus_outbox_open(int fd)
{
	out->fd = fd;
	*out->is_ours = true;
}

void surus_outbox_leave(void)
{
	surus_self->has_no_client = true;
	if (out->fd >= 0) {
		close(out->fd);
		out->fd = -1;
	}
}

void surus_outbox_begin(const struct surus_event *event)
{
	out->request = event->id;
	out->ticket = event->ticket;
	out->ticket_said = false;
	out->collected = 0;
	out->response_ended = false;
	out->has_spoken = false;
}

/* Ends a copy of the worker that libc knows nothing of (FFI): it would answer somebody else's
 * event. */
static void check_ours(void)
{
	if (!*out->is_ours) {
		_exit(SURUS_EXIT_INBOX_CLOSED);
	}
}

/* Before the first of what is said of an event stands its ticket: surus believes this worker's
 * answer because of it. */
static void put_ticket(unsigned char *to)
{
	fcgi_put_header(to, SURUS_TICKET, out->request, 8);
	for (int i = 0; i < 8; i++) {
		to[FCGI_HEADER_LEN + i] = (unsigned char)(out->ticket >> (56 - 8 * i));
	}
	out->ticket_said = true;
}

/* Writes all of `parts`. A surus that is gone ends the worker: nobody is left to work for. */
static bool write_parts(struct iovec *parts, int count)
{
	if (surus_self->has_no_client) {
		return true;
	}
	check_ours();
	out->has_spoken = true;
	unsigned char before = surus_calls_are_ours();
	while (count > 0) {
		ssize_t written = writev(out->fd, parts, count);
		if (written < 0) {
			if (errno == EINTR) {
				if (surus_stop_requested()) {
					/* Half a record may be out, so the stream cannot be continued. The event has to
					 * end anyway; so does this worker. */
					_exit(SURUS_EXIT_STOPPED);
				}
				continue;
			}
			_exit(SURUS_EXIT_INBOX_CLOSED);
		}
		while (count > 0 && (size_t)written >= parts->iov_len) {
			written -= (ssize_t)parts->iov_len;
			parts++;
			count--;
		}
		if (count > 0) {
			parts->iov_base = (char *)parts->iov_base + written;
			parts->iov_len -= (size_t)written;
		}
	}
	surus_calls_are_scripts(before);
	return true;
}

/* Writes a record that stands nowhere in our buffer. */
static bool write_record(unsigned char *header, const char *data, size_t len)
{
	unsigned char ticket[TICKET_LEN];
	struct iovec parts[] = {
		{.iov_base = ticket, .iov_len = sizeof(ticket)},
		{.iov_base = header, .iov_len = FCGI_HEADER_LEN},
		{.iov_base = (void *)data, .iov_len = len},
	};

	if (out->ticket_said) {
		return write_parts(parts + 1, 2);
	}
	put_ticket(ticket);
	return write_parts(parts, 3);
}

void surus_outbox_discard(bool on)
{
	surus_self->has_no_client = on;
}

bool surus_outbox_response_ended(void)
{
	return out->response_ended;
}

/* Records that are ready to leave. */
struct records {
	unsigned char *first;
	size_t len;
};

/* What has been collected, with the tail that follows it, and before it the ticket where that has
 * not been said. */
static struct records with_tail(size_t tail_len)
{
	struct records records = {out->buffer + CONTENT, out->collected + tail_len};

	if (out->collected > 0) {
		records.first -= FCGI_HEADER_LEN;
		fcgi_put_header(records.first, FCGI_STDOUT, out->request, (uint32_t)out->collected);
		records.len += FCGI_HEADER_LEN;
	}
	if (!out->ticket_said) {
		records.first -= TICKET_LEN;
		put_ticket(records.first);
		records.len += TICKET_LEN;
	}
	out->collected = 0;
	return records;
}

static bool write_records(struct records records)
{
	struct iovec part = {.iov_base = records.first, .iov_len = records.len};
	return write_parts(&part, 1);
}

bool surus_outbox_flush(void)
{
	return out->collected == 0 || write_records(with_tail(0));
}

bool surus_outbox_write(const char *data, size_t len)
{
	if (out->response_ended) {
		return surus_self->has_no_client;
	}
	if (len <= CAPACITY - out->collected) {
		memcpy(out->buffer + CONTENT + out->collected, data, len);
		out->collected += len;
		return true;
	}
	if (!surus_outbox_flush()) {
		return false;
	}
	/* Large pieces leave from where they are, without a copy. */
	while (len > CAPACITY) {
		unsigned char header[FCGI_HEADER_LEN];
		size_t piece = len > FCGI_MAX_CONTENT ? FCGI_MAX_CONTENT : len;

		fcgi_put_header(header, FCGI_STDOUT, out->request, (uint32_t)piece);
		if (surus_client_gone() || !write_record(header, data, piece)) {
			return false;
		}
		data += piece;
		len -= piece;
	}
	memcpy(out->buffer + CONTENT, data, len);
	out->collected = len;
	return true;
}

/* Puts the answer to an event into the ring, or its end, or both. False: they have to go by the
 * socket, as all that follows then. */
static bool post(struct records records)
{
	/* The letters of a process that ends with its event would be found beside those of the next one
	 * in its place. */
	if (out->has_spoken || surus_self->has_no_client || surus_serves_one()) {
		return false;
	}
	check_ours();
	if (!surus_rings_post(records.first, records.len)) {
		return false;
	}
	if (surus_rings_is_surus_to_wake()) {
		unsigned char before = surus_calls_are_ours();
		surus_rings_ring();
		surus_calls_are_scripts(before);
	}
	return true;
}

bool surus_outbox_finish(void)
{
	if (out->response_ended) {
		return true;
	}
	out->response_ended = true;
	/* An empty record ends the stream (FastCGI specification, 3.3). */
	fcgi_put_header(out->buffer + CONTENT + out->collected, FCGI_STDOUT, out->request, 0);
	struct records response = with_tail(FCGI_HEADER_LEN);
	return post(response) || write_records(response);
}

void surus_outbox_end(enum surus_outcome outcome, int exit_status)
{
	unsigned char *end = out->buffer + CONTENT + out->collected;
	uint32_t status = (uint32_t)exit_status;

	fcgi_put_header(end, FCGI_END_REQUEST, out->request, 8);
	end += FCGI_HEADER_LEN;
	end[0] = (unsigned char)(status >> 24);
	end[1] = (unsigned char)(status >> 16);
	end[2] = (unsigned char)(status >> 8);
	end[3] = (unsigned char)status;
	end[4] = (unsigned char)outcome;
	/* Reserved by FastCGI: when the event was taken, in units of 64 us, as much as there is room
	 * for. */
	end[5] = (unsigned char)(surus_self->taken_at >> 22);
	end[6] = (unsigned char)(surus_self->taken_at >> 14);
	end[7] = (unsigned char)(surus_self->taken_at >> 6);
	out->response_ended = true;
	struct records answer = with_tail(END_LEN);
	if (outcome == SURUS_NOT_BEGUN || !post(answer)) {
		write_records(answer);
	}
}

static bool send_record(enum surus_record_type type, const char *data, size_t len)
{
	unsigned char header[FCGI_HEADER_LEN];

	fcgi_put_header(header, type, out->request, (uint32_t)len);
	return write_record(header, data, len);
}

void surus_outbox_log(const char *message, size_t len)
{
	while (len > FCGI_MAX_CONTENT) {
		if (!send_record(FCGI_STDERR, message, FCGI_MAX_CONTENT)) {
			return;
		}
		message += FCGI_MAX_CONTENT;
		len -= FCGI_MAX_CONTENT;
	}
	if (len > 0) {
		send_record(FCGI_STDERR, message, len);
	}
	/* An empty record ends the message. */
	send_record(FCGI_STDERR, "", 0);
}

bool surus_outbox_hints(const char *headers, size_t len)
{
	return len <= FCGI_MAX_CONTENT && send_record(SURUS_EARLY_HINTS, headers, len);
}

bool surus_outbox_hung_up(void)
{
	struct pollfd poll_outbox = {.fd = out->fd, .events = 0};
	return poll(&poll_outbox, 1, 0) > 0 && (poll_outbox.revents & (POLLHUP | POLLERR | POLLNVAL));
}
