/* Receives requests from the request ring and the request socket. Decides when a worker polls, when
 * it blocks, and by which scheduling policy it runs. */
#include "ipc/inbox.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/persistent_map.h"
#include "base/process_state.h"
#include "base/scoreboard.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "ipc/fastcgi.h"
#include "ipc/request_decode.h"
#include "ipc/rings.h"

/* In persistent memory. */
static struct inbox {
	int epoll; /* waits for the request socket; -1 if that is not possible */
	unsigned load; /* how often Surus recently had several requests in flight */
	bool may_use_batch; /* the scheduling policy was the default one at the start */
	bool uses_batch;
	/* requests without polling after the next loss of the CPU */
	unsigned poll_pause;
	unsigned poll_pause_left; /* requests without polling still to come */
	/* wait for a request, in microseconds; about four of five waits are shorter */
	uint64_t usual_wait;
	/* the last request came through the socket although the worker did not wait there */
	bool had_socket;
	uint64_t socket_checked_at; /* when, in microseconds of CLOCK_MONOTONIC */
} *inbox;

bool surus_inbox_create(void)
{
	inbox = surus_persistent_alloc(sizeof(*inbox));
	if (!inbox) {
		return false;
	}
	inbox->epoll = -1;
	return true;
}

void surus_inbox_leave(void)
{
	close(SURUS_FD_INBOX);
	if (inbox->epoll >= 0) {
		close(inbox->epoll);
	}
}

/* Waits are counted as at most this long. Also the initial value. */
static uint64_t long_wait(void)
{
	return (uint64_t)surus_settings.busy_poll * 10;
}

/* How many requests a worker receives without polling after it has lost the CPU while it polled. */
enum { LEAST_PAUSE = 8, MOST_PAUSE = 8192 };

void surus_inbox_open(void)
{
	struct epoll_event readable = {.events = EPOLLIN | EPOLLEXCLUSIVE};

	surus_rings_begin();
	inbox->may_use_batch = sched_getscheduler(0) == SCHED_OTHER;
	inbox->usual_wait = long_wait();
	inbox->poll_pause = LEAST_PAUSE;
	inbox->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (inbox->epoll >= 0 && epoll_ctl(inbox->epoll, EPOLL_CTL_ADD, SURUS_FD_INBOX, &readable) !=
	        0) {
		/* Some kernels and sandboxes do not support the flag. */
		close(inbox->epoll);
		inbox->epoll = -1;
	}
}

/* Under SCHED_BATCH a worker that is woken does not preempt the running thread, which is usually a
 * thread of Surus with more requests to send. So requests and responses are handled in batches: 1.4
 * times as many requests/s of a hello world at 64 connections on 2 CPUs. A single request would
 * only be delayed, so then the policy is SCHED_OTHER. Both get the same share of the CPUs
 * (sched(7)). */
static void update_policy(bool concurrent)
{
	enum { MOST = 256, FOR_EACH = 4 };
	struct sched_param none = {0};

	inbox->load += concurrent ? FOR_EACH : inbox->load > 0 ? -1u : 0;
	if (inbox->load > MOST) {
		inbox->load = MOST;
	}
	if (inbox->may_use_batch && inbox->load == (inbox->uses_batch ? 0 : MOST)) {
		inbox->uses_batch = !inbox->uses_batch;
		/* If it is forbidden, the worker is only slower. */
		sched_setscheduler(0, inbox->uses_batch ? SCHED_BATCH : SCHED_OTHER, &none);
	}
}

/* As recvmsg(), from the request ring. */
static ssize_t take_from_ring(struct msghdr *msg)
{
	msg->msg_controllen = 0;
	msg->msg_flags = 0;
	return (ssize_t)surus_rings_take(msg->msg_iov->iov_base, msg->msg_iov->iov_len);
}

/* bytes of a kick */
enum { KICK = sizeof(((struct surus_request_record *)0)->wakes) };

#ifndef SCM_PIDFD
#define SCM_PIDFD 0x04 /* since Linux 6.5 */
#endif

/* Any worker can set SO_PASSPIDFD; then each message brings a descriptor that must be closed. */
static void close_pidfds(struct msghdr *msg)
{
	int fd;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_PIDFD &&
		        c->cmsg_len >= CMSG_LEN(sizeof(fd))) {
			memcpy(&fd, CMSG_DATA(c), sizeof(fd));
			if (fd >= 0) {
				close(fd);
			}
		}
	}
}

static ssize_t take_from_socket(struct msghdr *msg, size_t control, int flags)
{
	const unsigned char *wakes = msg->msg_iov->iov_base;

	msg->msg_controllen = control;
	ssize_t len = recvmsg(SURUS_FD_INBOX, msg, MSG_CMSG_CLOEXEC | flags);
	if (len > 0) {
		close_pidfds(msg);
	}
	if (len >= FCGI_HEADER_LEN + (ssize_t)sizeof(struct surus_request_record)) {
		wakes += FCGI_HEADER_LEN + offsetof(struct surus_request_record, wakes);
	} else if (len != KICK) {
		return len;
	}
	uint32_t place = fcgi_get_u32(wakes);
	if (place > 0) {
		surus_rings_ack_wakeup(place - 1);
	}
	return len;
}

static bool is_empty(ssize_t len)
{
	return len < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

/* Takes a request from socket or ring, alternately if both have one. 0: both are empty. The socket
 * carries kicks and requests that are too large for the ring. Surus announces messages in the
 * socket that wake no particular worker. A worker could overwrite the announcement, so the socket
 * is checked regularly anyway. */
static ssize_t take(struct msghdr *msg, size_t control)
{
	enum { LONG = 5000 }; /* us */
	uint64_t now = surus_process->since;
	bool maybe, had_socket = inbox->had_socket;
	uint64_t by_socket = surus_rings_sent_by_socket(&maybe);
	ssize_t len = 0;

	inbox->had_socket = false;
	if (maybe && had_socket) {
		len = take_from_ring(msg);
	}
	if (len == 0 && (maybe || now - inbox->socket_checked_at > LONG)) {
		inbox->socket_checked_at = now;
		len = take_from_socket(msg, control, MSG_DONTWAIT);
		if (is_empty(len)) {
			surus_rings_ack_socket(by_socket);
			len = 0;
		}
		inbox->had_socket = len > 0;
	}
	return len == 0 || len == KICK ? take_from_ring(msg) : len;
}

/* Blocks until the socket has a message and takes it. If several workers wait in recvmsg(), the
 * kernel wakes them in turn. With EPOLLEXCLUSIVE it wakes the first one, whose memory is in the
 * caches. That costs one more system call, which pays if only one worker has work. */
static ssize_t wait_at_socket(struct msghdr *msg, size_t control)
{
	bool fair = inbox->epoll < 0 || surus_scoreboard_others_busy();
	struct epoll_event ready;

	for (;;) {
		if (!fair && epoll_wait(inbox->epoll, &ready, 1, -1) < 0) {
			return -1;
		}
		ssize_t len = take_from_socket(msg, control, fair ? 0 : MSG_DONTWAIT);
		if (!is_empty(len)) {
			return len;
		}
		if (fair) {
			/* A script has set O_NONBLOCK, which all workers share. */
			struct pollfd socket = {.fd = SURUS_FD_INBOX, .events = POLLIN};
			poll(&socket, 1, -1);
		}
	}
}

/* Whether to poll before blocking: if most requests arrive soon. On an idle CPU of a virtual
 * machine, a wake-up costs 30 us of latency and 15 us of the waker's CPU. Not while several
 * requests are in flight: then other threads need the CPU. */
static bool should_poll(void)
{
	if (inbox->poll_pause_left > 0) {
		inbox->poll_pause_left--;
		return false;
	}
	return inbox->load == 0 && inbox->usual_wait < surus_settings.busy_poll;
}

static ssize_t poll_rings(struct msghdr *msg, size_t control, uint64_t since)
{
	ssize_t len;

	surus_rings_begin_polling();
	do {
		/* Other runnable threads of this CPU go first. */
		sched_yield();
		len = take(msg, control);
	} while (len == 0 && surus_now() - since < surus_settings.busy_poll);
	int error = errno;
	surus_rings_end_polling();
	errno = error;
	return len;
}

/* A worker that yielded to another thread gets the CPU back after a time slice of milliseconds;
 * fifty wake-ups cost less. So after such a loss it does not poll for some requests, and for twice
 * as many after the next loss. */
static void record_poll(uint64_t us)
{
	unsigned *pause = &inbox->poll_pause;

	if (us < surus_settings.busy_poll * 5) {
		*pause -= (*pause + 63) / 64;
	} else {
		inbox->poll_pause_left = *pause;
		*pause *= 2;
	}
	*pause = *pause < LEAST_PAUSE ? LEAST_PAUSE : *pause < MOST_PAUSE ? *pause : MOST_PAUSE;
}

/* Follows the fourth quintile: about four of five waits are shorter. */
static void record_wait(uint64_t us, bool has_polled)
{
	uint64_t usual = inbox->usual_wait, woken = surus_settings.busy_poll / 2;

	if (!has_polled) {
		/* Without the wake-up latency the wait would have been shorter. */
		us = us < woken ? 0 : us - woken;
	}
	usual = us < usual ? usual - (usual + 15) / 16 : usual + usual / 4 + 1;
	inbox->usual_wait = usual < long_wait() ? usual : long_wait();
}

static ssize_t receive(struct msghdr *msg)
{
	size_t control = msg->msg_controllen;

	/* Another worker may have set this worker's bit by mistake. */
	surus_rings_end_wait();
	ssize_t len = take(msg, control);
	if (len != 0) {
		return len;
	}
	uint64_t since = surus_now();
	bool polls = should_poll();
	if (polls) {
		len = poll_rings(msg, control, since);
		record_poll(surus_now() - since);
	}
	while (len == 0) {
		surus_rings_begin_wait();
		len = take_from_ring(msg);
		bool has_waited = len == 0;
		if (has_waited) {
			len = wait_at_socket(msg, control);
			/* Surus sends a signal if the socket has a message that has woken no worker. */
			inbox->socket_checked_at = len < 0 ? 0 : surus_now();
			if (len == 0) {
				/* Surus has closed the socket; it has filled the ring before. */
				return take_from_ring(msg);
			}
		}
		if (!surus_rings_end_wait() && !has_waited) {
			/* The socket contains a message that was to wake this worker; no other worker knows of
			 * it. */
			inbox->socket_checked_at = 0;
		}
		if (len == KICK) {
			len = take_from_ring(msg);
		}
	}
	record_wait(surus_now() - since, polls);
	return len;
}

int surus_inbox_receive(struct surus_request *request)
{
	/* A descriptor needs 24 bytes. Any worker can make the kernel add credentials, labels, times
	 * and pidfds; the first two come before the descriptor. */
	enum { CONTROL = 8192 };
	union {
		struct cmsghdr align;
		char bytes[CONTROL];
	} control;
	struct iovec iov = {.iov_base = surus_request_message, .iov_len = SURUS_MESSAGE_MAX};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
	        .msg_controllen = sizeof(control)};
	ssize_t len = receive(&msg);

	if (len < 0 && errno == EINTR) {
		return -1;
	}
	if (len <= 0) {
		return 0;
	}
	surus_request_clear(request);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
		        c->cmsg_len >= CMSG_LEN(sizeof(int))) {
			memcpy(&request->body_fd, CMSG_DATA(c), sizeof(int));
		}
	}
	const char *error = msg.msg_flags & MSG_TRUNC ? "too long"
	        : surus_request_parse(request, (size_t)len);
	bool lacks_body = request->body_fd < 0 && !request->body && request->body_len > 0;
	if (msg.msg_flags & MSG_CTRUNC && lacks_body && request->id > 0 &&
	        request->id < surus_settings.requests) {
		fprintf(stderr,
		        "surus-php: no descriptor is left for the body of a request; another worker gets "
		        "the request and replaces this one; if this happens again, raise the limit "
		        "(RLIMIT_NOFILE: LimitNOFILE= of systemd, ulimit -n)\n");
		return 2;
	}
	if (error) {
		fprintf(stderr, "surus-php: malformed message in the request socket: %s\n", error);
		surus_request_close(request);
		return -2;
	}
	update_policy(request->is_concurrent);
	return 1;
}
