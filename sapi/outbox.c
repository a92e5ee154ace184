/* What a worker says to surus: FastCGI records on a stream socket of its own. A small answer, its head, its body and its
 * end, is collected and leaves in one piece: as a letter in the ring, or in one system call. */
#include "surus.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fastcgi.h"
#include "rings.h"
#include "snapshot.h"

enum {
	CAPACITY = SURUS_OUTBOX_CAPACITY,
	END_LEN = FCGI_HEADER_LEN + 8,
	TICKET_LEN = FCGI_HEADER_LEN + 8,
	HEADER = TICKET_LEN,                 /* where in the buffer is the header of what is collected */
	CONTENT = HEADER + FCGI_HEADER_LEN,  /* and what is collected */
};
#define OUT (surus_self->outbox)
_Static_assert(sizeof(surus_self->outbox.buffer) >= CONTENT + CAPACITY + FCGI_HEADER_LEN + END_LEN, "room for all records");

bool surus_outbox_prepare(void)
{
	OUT.is_ours = surus_exempt_map(sizeof(*OUT.is_ours));
	if (!OUT.is_ours) {
		fprintf(stderr, "surus-php: no memory: %m\n");
		return false;
	}
	/* Not every kernel has it, nor what stands in for one; without it there is one defence less. */
	madvise(OUT.is_ours, sizeof(*OUT.is_ours), MADV_WIPEONFORK);
	return true;
}

void surus_outbox_open(int fd)
{
	OUT.fd = fd;
	*OUT.is_ours = true;
}

void surus_outbox_leave(void)
{
	OUT.discards = true;
	if (OUT.fd >= 0) {
		close(OUT.fd);
		OUT.fd = -1;
	}
}

void surus_outbox_begin(const struct surus_event *event)
{
	OUT.request = event->id;
	OUT.ticket = event->ticket;
	OUT.ticket_said = false;
	OUT.collected = 0;
	OUT.response_ended = false;
	OUT.has_spoken = false;
}

/* Ends a copy of the worker that libc knows nothing of (FFI): it would answer somebody else's event. */
static void check_ours(void)
{
	if (!*OUT.is_ours) {
		_exit(SURUS_EXIT_INBOX_CLOSED);
	}
}

/* Before the first of what is said of an event stands its ticket: surus believes this worker's answer because of it. */
static void put_ticket(unsigned char *to)
{
	fcgi_put_header(to, SURUS_TICKET, OUT.request, 8);
	for (int i = 0; i < 8; i++) {
		to[FCGI_HEADER_LEN + i] = (unsigned char)(OUT.ticket >> (56 - 8 * i));
	}
	OUT.ticket_said = true;
}

/* Writes all of `parts`. A surus that is gone ends the worker: nobody is left to work for. */
static bool write_parts(struct iovec *parts, int count)
{
	if (OUT.discards) {
		return true;
	}
	check_ours();
	OUT.has_spoken = true;
	unsigned char before = surus_calls_are_ours();
	while (count > 0) {
		ssize_t written = writev(OUT.fd, parts, count);
		if (written < 0) {
			if (errno == EINTR) {
				if (surus_stop_requested()) {
					/* Half a record may be out, so the stream cannot be continued. The event has to end anyway; so
					 * does this worker. */
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

	if (OUT.ticket_said) {
		return write_parts(parts + 1, 2);
	}
	put_ticket(ticket);
	return write_parts(parts, 3);
}

void surus_outbox_discard(bool on)
{
	OUT.discards = on;
}

bool surus_outbox_response_ended(void)
{
	return OUT.response_ended;
}

/* Records that are ready to leave. */
struct records {
	unsigned char *first;
	size_t len;
};

/* What has been collected, with the tail that follows it, and before it the ticket where that has not been said. */
static struct records with_tail(size_t tail_len)
{
	struct records records = {OUT.buffer + CONTENT, OUT.collected + tail_len};

	if (OUT.collected > 0) {
		records.first -= FCGI_HEADER_LEN;
		fcgi_put_header(records.first, FCGI_STDOUT, OUT.request, (uint32_t)OUT.collected);
		records.len += FCGI_HEADER_LEN;
	}
	if (!OUT.ticket_said) {
		records.first -= TICKET_LEN;
		put_ticket(records.first);
		records.len += TICKET_LEN;
	}
	OUT.collected = 0;
	return records;
}

static bool write_records(struct records records)
{
	struct iovec part = {.iov_base = records.first, .iov_len = records.len};
	return write_parts(&part, 1);
}

bool surus_outbox_flush(void)
{
	return OUT.collected == 0 || write_records(with_tail(0));
}

bool surus_outbox_write(const char *data, size_t len)
{
	if (OUT.response_ended) {
		return OUT.discards;
	}
	if (len <= CAPACITY - OUT.collected) {
		memcpy(OUT.buffer + CONTENT + OUT.collected, data, len);
		OUT.collected += len;
		return true;
	}
	if (!surus_outbox_flush()) {
		return false;
	}
	/* Large pieces leave from where they are, without a copy. */
	while (len > CAPACITY) {
		unsigned char header[FCGI_HEADER_LEN];
		size_t piece = len > FCGI_MAX_CONTENT ? FCGI_MAX_CONTENT : len;

		fcgi_put_header(header, FCGI_STDOUT, OUT.request, (uint32_t)piece);
		if (surus_client_gone() || !write_record(header, data, piece)) {
			return false;
		}
		data += piece;
		len -= piece;
	}
	memcpy(OUT.buffer + CONTENT, data, len);
	OUT.collected = len;
	return true;
}

/* Puts the answer to an event into the ring, or its end, or both. False: they have to go by the socket, as all that follows then. */
static bool post(struct records records)
{
	/* The letters of a process that ends with its event would be found beside those of the next one in its place. */
	if (OUT.has_spoken || OUT.discards || surus_serves_one()) {
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
	if (OUT.response_ended) {
		return true;
	}
	OUT.response_ended = true;
	/* An empty record ends the stream (FastCGI specification, 3.3). */
	fcgi_put_header(OUT.buffer + CONTENT + OUT.collected, FCGI_STDOUT, OUT.request, 0);
	struct records response = with_tail(FCGI_HEADER_LEN);
	return post(response) || write_records(response);
}

void surus_outbox_end(enum surus_outcome outcome, int exit_status)
{
	unsigned char *end = OUT.buffer + CONTENT + OUT.collected;
	uint32_t status = (uint32_t)exit_status;

	fcgi_put_header(end, FCGI_END_REQUEST, OUT.request, 8);
	end += FCGI_HEADER_LEN;
	end[0] = (unsigned char)(status >> 24);
	end[1] = (unsigned char)(status >> 16);
	end[2] = (unsigned char)(status >> 8);
	end[3] = (unsigned char)status;
	end[4] = (unsigned char)outcome;
	/* Reserved by FastCGI: when the event was taken, in units of 64 us, as much as there is room for. */
	end[5] = (unsigned char)(surus_self->taken_at >> 22);
	end[6] = (unsigned char)(surus_self->taken_at >> 14);
	end[7] = (unsigned char)(surus_self->taken_at >> 6);
	OUT.response_ended = true;
	struct records answer = with_tail(END_LEN);
	if (outcome == SURUS_NOT_BEGUN || !post(answer)) {
		write_records(answer);
	}
}

static bool send_record(enum surus_record_type type, const char *data, size_t len)
{
	unsigned char header[FCGI_HEADER_LEN];

	fcgi_put_header(header, type, OUT.request, (uint32_t)len);
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
	struct pollfd poll_outbox = {.fd = OUT.fd, .events = 0};
	return poll(&poll_outbox, 1, 0) > 0 && (poll_outbox.revents & (POLLHUP | POLLERR | POLLNVAL));
}
