/* Receives requests from the request ring and the request socket. Decides when a worker polls, when
 * it blocks, and by which scheduling policy it runs. */
#include "ipc/inbox.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
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
#include "ipc/outbox.h"
#include "ipc/request_decode.h"
#include "ipc/rings.h"

/* In persistent memory. */
static struct inbox {
	bool may_use_batch; /* the scheduling policy was the default one at the start */
	bool uses_batch;
} *inbox;

bool surus_inbox_create(void)
{
	inbox = surus_persistent_alloc(sizeof(*inbox));
	return inbox != NULL;
}

void surus_inbox_leave(void)
{
	close(SURUS_FD_INBOX);
}

void surus_inbox_open(void)
{
	surus_rings_begin();
	inbox->may_use_batch = sched_getscheduler(0) == SCHED_OTHER;
}

/* Under SCHED_BATCH a worker that is woken does not preempt the running thread, which is usually a
 * thread of Surus with more requests to send. So requests and responses are handled in batches: 1.4
 * times as many requests/s of a hello world at 64 connections on 2 CPUs. A single request would
 * only be delayed, so then the policy is SCHED_OTHER. Both get the same share of the CPUs
 * (sched(7)). */
static void set_policy(bool batches)
{
	struct sched_param none = {0};

	if (inbox->may_use_batch && inbox->uses_batch != batches) {
		inbox->uses_batch = batches;
		/* If it is forbidden, the worker is only slower. */
		sched_setscheduler(0, batches ? SCHED_BATCH : SCHED_OTHER, &none);
	}
}

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

/* Any worker can make each message signal all of them (F_SETOWN, F_SETSIG). Fatal signals show in
 * the master process, which undoes it; this tells it about others. */
static void report_signals(void)
{
	int flags = fcntl(SURUS_FD_INBOX, F_GETFL);

	if (flags >= 0 && flags & O_ASYNC) {
		kill(getppid(), SIGCHLD);
	}
}

bool surus_inbox_reset_signals(void)
{
	int flags = fcntl(SURUS_FD_INBOX, F_GETFL);

	if (flags < 0 || !(flags & O_ASYNC)) {
		return false;
	}
	fcntl(SURUS_FD_INBOX, F_SETFL, flags & ~O_ASYNC);
	fcntl(SURUS_FD_INBOX, F_SETSIG, 0);
	fcntl(SURUS_FD_INBOX, F_SETOWN, 0);
	return true;
}

/* As recvmsg(), without waiting. Ignores messages by which Surus tests the socket. */
static ssize_t take_from_socket(struct msghdr *msg, size_t control)
{
	ssize_t len;

	do {
		msg->msg_controllen = control;
		len = recvmsg(SURUS_FD_INBOX, msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
		if (len > 0) {
			close_pidfds(msg);
			report_signals();
		}
	} while (len > 0 && len < FCGI_HEADER_LEN);
	return len;
}

/* Takes the next request. The ring has an entry for each, also for those in the socket. A worker
 * that was about to block may have taken the announced message before. 0: there is none. */
static ssize_t take(struct msghdr *msg, size_t control)
{
	ssize_t len;

	do {
		msg->msg_controllen = 0;
		msg->msg_flags = 0;
		len = (ssize_t)surus_rings_take(msg->msg_iov->iov_base, msg->msg_iov->iov_len);
		if (len != SURUS_IN_SOCKET) {
			return len;
		}
		len = take_from_socket(msg, control);
	} while (len <= 0);
	return len;
}

static ssize_t poll_ring(struct msghdr *msg, size_t control)
{
	uint64_t since = surus_process->since;
	ssize_t len = 0;

	while (len == 0 && surus_clock_now() - since < surus_rings_poll_budget()) {
		surus_rings_set_doorbell(SURUS_POLLING);
		do {
			/* Other runnable threads of this CPU go first. */
			sched_yield();
		} while (!surus_rings_has_entry() && surus_clock_now() - since < surus_rings_poll_budget());
		surus_rings_set_doorbell(SURUS_WORKING);
		len = take(msg, control);
	}
	return len;
}

/* Takes the next request, and waits for it. 0: Surus has closed the socket. -1: interrupted, or
 * this worker is released. */
static ssize_t receive(struct msghdr *msg, size_t control)
{
	ssize_t len = take(msg, control);

	if (len == 0) {
		len = poll_ring(msg, control);
	}
	while (len == 0) {
		bool is_closed = false, is_interrupted = false;

		surus_rings_set_doorbell(SURUS_BLOCKED);
		if (!surus_rings_has_entry()) {
			/* A worker that was killed, or memory that a script has overwritten, may have lost the
			 * announcement of a message. And only here does the worker see that the socket is
			 * closed. */
			len = take_from_socket(msg, control);
			is_closed = len == 0 || (len < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
			is_interrupted = len < 0 && !is_closed &&
			        (surus_outbox_is_released() || !surus_rings_wait());
		}
		surus_rings_set_doorbell(SURUS_WORKING);
		if (len <= 0) {
			len = take(msg, control);
		}
		if (len == 0 && (is_closed || is_interrupted)) {
			return is_closed ? 0 : -1;
		}
	}
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
	ssize_t len = receive(&msg, sizeof(control));

	if (len <= 0) {
		return (int)len;
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
	        request->id < surus_settings.slots) {
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
	set_policy(request->batches);
	return 1;
}
