/* Receives events from the inbox. One message is one whole request, so nothing here waits for
 * more. */
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

/* Not restored by a rewind. */
static struct inbox {
	int epoll;               /* tells of events in the inbox; -1 where that cannot be had */
	unsigned crowd;          /* how often there was more than one event at a time, lately */
	bool may_wait_in_turn;   /* nobody has given us another scheduling policy than the usual one */
	bool waits_in_turn;
	/* events for which it is not looked the next time that others want the CPU */
	unsigned spin_pause;
	unsigned spin_pause_left; /* and of the last time */
	uint64_t usual_wait;     /* for an event, in microseconds: most are shorter */
	/* the last event came by the socket though it was not waited for there */
	bool had_socket;
	uint64_t looked_at_socket; /* when, in microseconds of CLOCK_MONOTONIC */
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

/* The longest wait for an event that is told from others, and what it is taken for before anything
 * is known. */
static uint64_t long_wait(void)
{
	return (uint64_t)surus_settings.spin * 10;
}

/* Events for which a worker that has lost the CPU while it looked sleeps at once. */
enum { LEAST_PAUSE = 8, MOST_PAUSE = 8192 };

void surus_event_open(void)
{
	struct epoll_event readable = {.events = EPOLLIN | EPOLLEXCLUSIVE};

	surus_rings_begin();
	inbox->may_wait_in_turn = sched_getscheduler(0) == SCHED_OTHER;
	inbox->usual_wait = long_wait();
	inbox->spin_pause = LEAST_PAUSE;
	inbox->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (inbox->epoll >= 0 && epoll_ctl(inbox->epoll, EPOLL_CTL_ADD, SURUS_FD_INBOX, &readable) !=
	        0) {
		/* Not every kernel, nor what stands in for one, knows the flag. */
		close(inbox->epoll);
		inbox->epoll = -1;
	}
}

/* A worker that waits in turn (SCHED_BATCH) takes the CPU from nobody when an event wakes it:
 * mostly it would be from surus, which has more to send. So events and answers are dealt with some
 * at a time instead of by turns, which makes 1.4 times as many requests/s of a hello world at 64
 * connections on 2 CPUs. Where one event comes at a time it would only be late, and what we have
 * there is the usual policy. The share of the CPUs is the same in both (sched(7)). */
static void wait_in_turn(bool one_of_many)
{
	enum { MOST = 256, FOR_EACH = 4 };
	struct sched_param none = {0};

	inbox->crowd += one_of_many ? FOR_EACH : inbox->crowd > 0 ? -1u : 0;
	if (inbox->crowd > MOST) {
		inbox->crowd = MOST;
	}
	if (inbox->may_wait_in_turn && inbox->crowd == (inbox->waits_in_turn ? 0 : MOST)) {
		inbox->waits_in_turn = !inbox->waits_in_turn;
		/* Where it is forbidden, it is only slower. */
		sched_setscheduler(0, inbox->waits_in_turn ? SCHED_BATCH : SCHED_OTHER, &none);
	}
}

/* As recvmsg(), from the ring. */
static ssize_t take_from_ring(struct msghdr *msg)
{
	msg->msg_controllen = 0;
	msg->msg_flags = 0;
	return (ssize_t)surus_rings_take(msg->msg_iov->iov_base, msg->msg_iov->iov_len);
}

/* bytes of a message that says that there is something in the ring */
enum { KNOCK = sizeof(((struct surus_event_record *)0)->wakes) };

#ifndef SCM_PIDFD
#define SCM_PIDFD 0x04 /* since Linux 6.5 */
#endif

/* Any worker can set SO_PASSPIDFD, and each message then brings a descriptor that nobody here
 * uses. */
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
	if (len >= FCGI_HEADER_LEN + (ssize_t)sizeof(struct surus_event_record)) {
		wakes += FCGI_HEADER_LEN + offsetof(struct surus_event_record, wakes);
	} else if (len != KNOCK) {
		return len;
	}
	uint32_t place = fcgi_get_u32(wakes);
	if (place > 0) {
		surus_rings_was_to_wake(place - 1);
	}
	return len;
}

static bool is_empty(ssize_t len)
{
	return len < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

/* Takes what is there, from socket and ring by turns where both have something. 0: nothing. In the
 * socket is what has somebody to wake, or is too large for the ring; that there may be something
 * for which nobody was to be woken, surus says. Whatever it says, it is looked at now and then. */
static ssize_t take(struct msghdr *msg, size_t control)
{
	enum { LONG = 5000 }; /* us */
	uint64_t now = surus_self->since;
	bool maybe, had_socket = inbox->had_socket;
	uint64_t by_socket = surus_rings_by_socket(&maybe);
	ssize_t len = 0;

	inbox->had_socket = false;
	if (maybe && had_socket) {
		len = take_from_ring(msg);
	}
	if (len == 0 && (maybe || now - inbox->looked_at_socket > LONG)) {
		inbox->looked_at_socket = now;
		len = take_from_socket(msg, control, MSG_DONTWAIT);
		if (is_empty(len)) {
			surus_rings_received(by_socket);
			len = 0;
		}
		inbox->had_socket = len > 0;
	}
	return len == 0 || len == KNOCK ? take_from_ring(msg) : len;
}

/* Waits until there is something in the socket, and takes it. Where several workers wait for a
 * message, the kernel wakes in turn those that wait in recvmsg(), and with EPOLLEXCLUSIVE the first
 * of all that is there: the one whose memory is in the caches. That takes a system call more, which
 * pays where only one has work. */
static ssize_t sleep_at_socket(struct msghdr *msg, size_t control)
{
	bool in_turn = inbox->epoll < 0 || surus_template_others_work();
	struct epoll_event ready;

	for (;;) {
		if (!in_turn && epoll_wait(inbox->epoll, &ready, 1, -1) < 0) {
			return -1;
		}
		ssize_t len = take_from_socket(msg, control, in_turn ? 0 : MSG_DONTWAIT);
		if (!is_empty(len)) {
			return len;
		}
		if (in_turn) {
			/* A script has set O_NONBLOCK, which all workers share. */
			struct pollfd socket = {.fd = SURUS_FD_INBOX, .events = POLLIN};
			poll(&socket, 1, -1);
		}
	}
}

/* A worker that usually has its next event within a moment looks for it for as long before it
 * sleeps: on a CPU that has nothing else to do, and is a virtual machine's, it takes 30 us to be
 * woken, and 15 of who wakes. Not while events come together: then the CPU is wanted, and there is
 * another event. */
static bool is_to_spin(void)
{
	if (inbox->spin_pause_left > 0) {
		inbox->spin_pause_left--;
		return false;
	}
	return inbox->crowd == 0 && inbox->usual_wait < surus_settings.spin;
}

static ssize_t spin(struct msghdr *msg, size_t control, uint64_t since)
{
	ssize_t len;

	surus_rings_spin();
	do {
		/* Whatever else has something to do here goes first. */
		sched_yield();
		len = take(msg, control);
	} while (len == 0 && surus_now() - since < surus_settings.spin);
	int error = errno;
	surus_rings_spun();
	errno = error;
	return len;
}

/* Who gave way to others has the CPU back after a slice of theirs, milliseconds, and to be woken
 * for fifty events takes less. If it goes on so, it is for twice as many the next time. */
static void note_spin(uint64_t us)
{
	unsigned *pause = &inbox->spin_pause;

	if (us < surus_settings.spin * 5) {
		*pause -= (*pause + 63) / 64;
	} else {
		inbox->spin_pause_left = *pause;
		*pause *= 2;
	}
	*pause = *pause < LEAST_PAUSE ? LEAST_PAUSE : *pause < MOST_PAUSE ? *pause : MOST_PAUSE;
}

/* About four of five are shorter than what is usual. */
static void note_wait(uint64_t us, bool has_spun)
{
	uint64_t usual = inbox->usual_wait, woken = surus_settings.spin / 2;

	if (!has_spun) {
		/* Awake, it would have been shorter by what it has taken to be woken. */
		us = us < woken ? 0 : us - woken;
	}
	usual = us < usual ? usual - (usual + 15) / 16 : usual + usual / 4 + 1;
	inbox->usual_wait = usual < long_wait() ? usual : long_wait();
}

static ssize_t receive(struct msghdr *msg)
{
	size_t control = msg->msg_controllen;

	/* Somebody may have said that we sleep who did not know better. */
	surus_rings_wake();
	ssize_t len = take(msg, control);
	if (len != 0) {
		return len;
	}
	uint64_t since = surus_now();
	bool spins = is_to_spin();
	if (spins) {
		len = spin(msg, control, since);
		note_spin(surus_now() - since);
	}
	while (len == 0) {
		surus_rings_sleep();
		len = take_from_ring(msg);
		bool has_slept = len == 0;
		if (has_slept) {
			len = sleep_at_socket(msg, control);
			/* By a signal surus says that a message is waiting there which has woken nobody. */
			inbox->looked_at_socket = len < 0 ? 0 : surus_now();
			if (len == 0) {
				/* surus has closed the socket; what is in the ring, it has put there before. */
				return take_from_ring(msg);
			}
		}
		if (!surus_rings_wake() && !has_slept) {
			/* There is a message in the socket that was to wake us, of which nobody else knows. */
			inbox->looked_at_socket = 0;
		}
		if (len == KNOCK) {
			len = take_from_ring(msg);
		}
	}
	note_wait(surus_now() - since, spins);
	return len;
}

int surus_event_receive(struct surus_event *event)
{
	/* A descriptor needs 24 bytes. Any worker can have the kernel add credentials, labels, times
	 * and pidfds, of which the first two come before it. */
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
	surus_event_clear(event);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
		        c->cmsg_len >= CMSG_LEN(sizeof(int))) {
			memcpy(&event->body_fd, CMSG_DATA(c), sizeof(int));
		}
	}
	const char *error = msg.msg_flags & MSG_TRUNC ? "longer than any message may be"
	        : surus_event_parse(event, (size_t)len);
	bool lacks_body = event->body_fd < 0 && !event->body && event->body_len > 0;
	if (msg.msg_flags & MSG_CTRUNC && lacks_body && event->id > 0 &&
	        event->id < surus_settings.requests) {
		fprintf(stderr,
		        "surus-php: no descriptor is left for the body of a request; this worker ends, "
		        "another gets the request; raise the limit (RLIMIT_NOFILE: LimitNOFILE= of "
		        "systemd, ulimit -n) where that comes again\n");
		return 2;
	}
	if (error) {
		fprintf(stderr, "surus-php: malformed message in the inbox: %s\n", error);
		surus_event_close(event);
		return -2;
	}
	wait_in_turn(event->is_one_of_many);
	return 1;
}
