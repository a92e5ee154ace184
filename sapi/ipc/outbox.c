/* Sends a worker's responses to Surus, as FastCGI records. A small response, with header, body and
 * end, is buffered and sent in one piece: as a frame of the response ring or by one system call. */
#include "ipc/outbox.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
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
	/* offset in the buffer of the first record's header */
	HEADER = TICKET_LEN,
	CONTENT = HEADER + FCGI_HEADER_LEN, /* offset of its content */
};

/* In persistent memory. */
static struct outbox {
	int fd;
	/* in memory that the kernel clears in every fork, also in one that bypasses libc */
	bool *is_original;
	uint16_t request;
	bool response_ended;
	bool used_socket; /* records of this request have been sent through the socket */
	uint64_t ticket; /* the current request's ticket */
	bool ticket_sent; /* the ticket has been sent or is in the buffer */
	size_t buffered; /* bytes of buffered content */
	/* The TICKET record, the header of the STDOUT record that is being filled, its content, and the
	 * END_REQUEST record. */
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
	/* A mapping of its own, because the kernel clears whole pages. */
	out->is_original = surus_persistent_map(sizeof(*out->is_original));
	if (!out->is_original) {
		return false;
	}
	/* Some kernels and sandboxes do not support it; then this check is missing. */
	madvise(out->is_original, sizeof(*out->is_original), MADV_WIPEONFORK);
	return true;
}

void surus_outbox_open(int fd)
{
	out->fd = fd;
	*out->is_original = true;
}

void surus_outbox_leave(void)
{
	surus_process->has_no_client = true;
	if (out->fd >= 0) {
		close(out->fd);
		out->fd = -1;
	}
}

void surus_outbox_begin(const struct surus_request *request)
{
	out->request = request->id;
	out->ticket = request->ticket;
	out->ticket_sent = false;
	out->buffered = 0;
	out->response_ended = false;
	out->used_socket = false;
}

/* Exits if this process is a fork of the worker that bypassed libc (FFI), because it would answer
 * another client's request. */
static void check_original(void)
{
	if (!*out->is_original) {
		_exit(SURUS_EXIT_DRAINED);
	}
}

/* The ticket precedes the first record of a request. It proves to Surus that this worker holds the
 * request. */
static void put_ticket(unsigned char *to)
{
	fcgi_put_header(to, SURUS_TICKET, out->request, 8);
	for (int i = 0; i < 8; i++) {
		to[FCGI_HEADER_LEN + i] = (unsigned char)(out->ticket >> (56 - 8 * i));
	}
	out->ticket_sent = true;
}

/* Writes all of `parts`. Exits if Surus has exited. */
static bool write_parts(struct iovec *parts, int count)
{
	if (surus_process->has_no_client) {
		return true;
	}
	check_original();
	out->used_socket = true;
	unsigned char before = surus_syscall_gate_pause();
	while (count > 0) {
		ssize_t written = writev(out->fd, parts, count);
		if (written < 0) {
			if (errno == EINTR) {
				if (surus_request_status_has_stop()) {
					/* A part of a record may have been sent, so the stream cannot continue. The
					 * request has to end, and so does this worker. */
					_exit(SURUS_EXIT_INTERRUPTED);
				}
				continue;
			}
			_exit(SURUS_EXIT_DRAINED);
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
	surus_syscall_gate_resume(before);
	return true;
}

/* Writes a record that is not in the buffer. */
static bool write_record(unsigned char *header, const char *data, size_t len)
{
	unsigned char ticket[TICKET_LEN];
	struct iovec parts[] = {
		{.iov_base = ticket, .iov_len = sizeof(ticket)},
		{.iov_base = header, .iov_len = FCGI_HEADER_LEN},
		{.iov_base = (void *)data, .iov_len = len},
	};

	if (out->ticket_sent) {
		return write_parts(parts + 1, 2);
	}
	put_ticket(ticket);
	return write_parts(parts, 3);
}

void surus_outbox_discard(bool on)
{
	surus_process->has_no_client = on;
}

/* Records that are ready to be sent. */
struct records {
	unsigned char *first;
	size_t len;
};

/* Returns the buffered content with the tail after it, preceded by the ticket if that has not been
 * sent. */
static struct records with_tail(size_t tail_len)
{
	struct records records = {out->buffer + CONTENT, out->buffered + tail_len};

	if (out->buffered > 0) {
		records.first -= FCGI_HEADER_LEN;
		fcgi_put_header(records.first, FCGI_STDOUT, out->request, (uint32_t)out->buffered);
		records.len += FCGI_HEADER_LEN;
	}
	if (!out->ticket_sent) {
		records.first -= TICKET_LEN;
		put_ticket(records.first);
		records.len += TICKET_LEN;
	}
	out->buffered = 0;
	return records;
}

static bool write_records(struct records records)
{
	struct iovec part = {.iov_base = records.first, .iov_len = records.len};
	return write_parts(&part, 1);
}

bool surus_outbox_flush(void)
{
	return out->buffered == 0 || write_records(with_tail(0));
}

bool surus_outbox_write(const char *data, size_t len)
{
	if (out->response_ended) {
		return surus_process->has_no_client;
	}
	if (len <= CAPACITY - out->buffered) {
		memcpy(out->buffer + CONTENT + out->buffered, data, len);
		out->buffered += len;
		return true;
	}
	if (!surus_outbox_flush()) {
		return false;
	}
	/* Large pieces are sent without a copy. */
	while (len > CAPACITY) {
		unsigned char header[FCGI_HEADER_LEN];
		size_t piece = len > FCGI_MAX_CONTENT ? FCGI_MAX_CONTENT : len;

		fcgi_put_header(header, FCGI_STDOUT, out->request, (uint32_t)piece);
		if (surus_request_status_is_closed() || !write_record(header, data, piece)) {
			return false;
		}
		data += piece;
		len -= piece;
	}
	memcpy(out->buffer + CONTENT, data, len);
	out->buffered = len;
	return true;
}

/* Puts response, end or both into the response ring. False: they must go through the socket, as
 * must everything that follows. */
static bool write_to_ring(struct records records)
{
	/* A process that serves one request must not use the ring: its frames could be unread when its
	 * successor writes to the same ring. */
	if (out->used_socket || surus_process->has_no_client || surus_engine_serves_one()) {
		return false;
	}
	check_original();
	if (!surus_rings_write_response(records.first, records.len)) {
		return false;
	}
	if (surus_rings_must_notify()) {
		unsigned char before = surus_syscall_gate_pause();
		surus_rings_wake_surus();
		surus_syscall_gate_resume(before);
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
	fcgi_put_header(out->buffer + CONTENT + out->buffered, FCGI_STDOUT, out->request, 0);
	struct records response = with_tail(FCGI_HEADER_LEN);
	return write_to_ring(response) || write_records(response);
}

void surus_outbox_end(enum surus_outcome outcome, uint32_t includes)
{
	unsigned char *end = out->buffer + CONTENT + out->buffered;

	fcgi_put_header(end, FCGI_END_REQUEST, out->request, 8);
	end += FCGI_HEADER_LEN;
	/* appStatus of FastCGI, which Surus reads as this count. */
	end[0] = (unsigned char)(includes >> 24);
	end[1] = (unsigned char)(includes >> 16);
	end[2] = (unsigned char)(includes >> 8);
	end[3] = (unsigned char)includes;
	end[4] = (unsigned char)outcome;
	/* Reserved by FastCGI: when the request was taken, in units of 64 us, truncated. */
	end[5] = (unsigned char)(surus_process->taken_at >> 22);
	end[6] = (unsigned char)(surus_process->taken_at >> 14);
	end[7] = (unsigned char)(surus_process->taken_at >> 6);
	out->response_ended = true;
	struct records records = with_tail(END_LEN);
	if (outcome == SURUS_NOT_BEGUN || !write_to_ring(records)) {
		write_records(records);
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

bool surus_outbox_is_released(void)
{
	char byte;

	return recv(out->fd, &byte, sizeof(byte), MSG_DONTWAIT) == 0;
}

bool surus_outbox_is_closed(void)
{
	struct pollfd poll_outbox = {.fd = out->fd, .events = 0};
	return poll(&poll_outbox, 1, 0) > 0 && (poll_outbox.revents & (POLLHUP | POLLERR | POLLNVAL));
}
