/* Receives events from the inbox. One message is one whole request, so nothing here waits for more. */
#include "surus.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fastcgi.h"
#include "rings.h"

static uint64_t get_u64(const unsigned char *from)
{
	uint64_t value = 0;
	for (int i = 0; i < 8; i++) {
		value = value << 8 | from[i];
	}
	return value;
}

static uint32_t get_u32(const unsigned char *from)
{
	return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
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

static const char *decode(struct surus_event *event, size_t len)
{
	unsigned char *at = surus_self->message, *end = at + len;
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

		if (at[0] != FCGI_VERSION_1 || (uint64_t)content_len + padding > (uint64_t)(end - content)) {
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
				event->tag = get_u32(record->tag);
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
	if (event->body_fd < 0 && event->body_len != (body_end ? (uint64_t)(body_end - event->body) : 0)) {
		return "the body has another length than announced";
	}
	/* Now that every length has been read, the byte behind each value is free to end it. */
	for (uint32_t i = 0; i < event->var_count; i++) {
		event->vars[i].value[event->vars[i].value_len] = '\0';
	}
	return NULL;
}

/* Forgets everything of the event before. */
static void clear(struct surus_event *event)
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
	clear(event);
	const char *error = decode(event, len);
	if (error) {
		fprintf(stderr, "surus-php: malformed message: %s\n", error);
		event->id = 0;
	}
	return error == NULL;
}

/* The longest wait for an event that is told from others, and what it is taken for before anything is known. */
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
	surus_self->usual_wait = long_wait();
	surus_self->spin_pause = LEAST_PAUSE;
	surus_self->inbox = epoll_create1(EPOLL_CLOEXEC);
	if (surus_self->inbox >= 0 && epoll_ctl(surus_self->inbox, EPOLL_CTL_ADD, SURUS_FD_INBOX, &readable) != 0) {
		/* Not every kernel, nor what stands in for one, knows the flag. */
		close(surus_self->inbox);
		surus_self->inbox = -1;
	}
}

/* A worker that waits in turn (SCHED_BATCH) takes the CPU from nobody when an event wakes it: mostly it would be from surus, which has more
 * to send. So events and answers are dealt with some at a time instead of by turns, which makes 1.4 times as many requests/s of a hello world at
 * 64 connections on 2 CPUs. Where one event comes at a time it would only be late, and what we have there is the usual policy. The share of the CPUs
 * is the same in both (sched(7)). */
static void wait_in_turn(bool one_of_many)
{
	enum { MOST = 256, FOR_EACH = 4 };
	struct sched_param none = {0};

	surus_self->crowd += one_of_many ? FOR_EACH : surus_self->crowd > 0 ? -1u : 0;
	if (surus_self->crowd > MOST) {
		surus_self->crowd = MOST;
	}
	if (surus_self->may_wait_in_turn && surus_self->crowd == (surus_self->waits_in_turn ? 0 : MOST)) {
		surus_self->waits_in_turn = !surus_self->waits_in_turn;
		/* Where it is forbidden, it is only slower. */
		sched_setscheduler(0, surus_self->waits_in_turn ? SCHED_BATCH : SCHED_OTHER, &none);
	}
}

/* As recvmsg(), from the ring. */
static ssize_t take_from_ring(struct msghdr *msg)
{
	msg->msg_controllen = 0;
	msg->msg_flags = 0;
	return (ssize_t)surus_rings_take(msg->msg_iov->iov_base, msg->msg_iov->iov_len);
}

enum { KNOCK = sizeof(((struct surus_event_record *)0)->wakes) }; /* bytes of a message that says that there is something in the ring */

static ssize_t take_from_socket(struct msghdr *msg, size_t control, int flags)
{
	const unsigned char *wakes = msg->msg_iov->iov_base;

	msg->msg_controllen = control;
	ssize_t len = recvmsg(SURUS_FD_INBOX, msg, MSG_CMSG_CLOEXEC | flags);
	if (len >= FCGI_HEADER_LEN + (ssize_t)sizeof(struct surus_event_record)) {
		wakes += FCGI_HEADER_LEN + offsetof(struct surus_event_record, wakes);
	} else if (len != KNOCK) {
		return len;
	}
	uint32_t place = get_u32(wakes);
	if (place > 0) {
		surus_rings_was_to_wake(place - 1);
	}
	return len;
}

static bool is_empty(ssize_t len)
{
	return len < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

/* Takes what is there, from socket and ring by turns where both have something. 0: nothing. In the socket is what has somebody to wake, or is too
 * large for the ring; that there may be something for which nobody was to be woken, surus says. Whatever it says, it is looked at now and then. */
static ssize_t take(struct msghdr *msg, size_t control)
{
	enum { LONG = 5000 }; /* us */
	uint64_t now = surus_self->since;
	bool maybe, had_socket = surus_self->had_socket;
	uint64_t by_socket = surus_rings_by_socket(&maybe);
	ssize_t len = 0;

	surus_self->had_socket = false;
	if (maybe && had_socket) {
		len = take_from_ring(msg);
	}
	if (len == 0 && (maybe || now - surus_self->looked_at_socket > LONG)) {
		surus_self->looked_at_socket = now;
		len = take_from_socket(msg, control, MSG_DONTWAIT);
		if (is_empty(len)) {
			surus_rings_received(by_socket);
			len = 0;
		}
		surus_self->had_socket = len > 0;
	}
	return len == 0 || len == KNOCK ? take_from_ring(msg) : len;
}

/* Waits until there is something in the socket, and takes it. Where several workers wait for a message, the kernel wakes in turn those that wait
 * in recvmsg(), and with EPOLLEXCLUSIVE the first of all that is there: the one whose memory is in the caches. That takes a system call more, which
 * pays where only one has work. */
static ssize_t sleep_at_socket(struct msghdr *msg, size_t control)
{
	bool in_turn = surus_self->inbox < 0 || surus_template_others_work();
	struct epoll_event ready;

	for (;;) {
		if (!in_turn && epoll_wait(surus_self->inbox, &ready, 1, -1) < 0) {
			return -1;
		}
		ssize_t len = take_from_socket(msg, control, in_turn ? 0 : MSG_DONTWAIT);
		if (!is_empty(len)) {
			return len;
		}
		if (in_turn) {
			/* A script has set O_NONBLOCK, which all workers share. */
			struct pollfd inbox = {.fd = SURUS_FD_INBOX, .events = POLLIN};
			poll(&inbox, 1, -1);
		}
	}
}

/* A worker that usually has its next event within a moment looks for it for as long before it sleeps: on a CPU that has nothing else to do, and is a
 * virtual machine's, it takes 30 us to be woken, and 15 of who wakes. Not while events come together: then the CPU is wanted, and there is another
 * event. */
static bool is_to_spin(void)
{
	if (surus_self->spin_pause_left > 0) {
		surus_self->spin_pause_left--;
		return false;
	}
	return surus_self->crowd == 0 && surus_self->usual_wait < surus_settings.spin;
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

/* Who gave way to others has the CPU back after a slice of theirs, milliseconds, and to be woken for fifty events takes less. If it goes on so, it is
 * for twice as many the next time. */
static void note_spin(uint64_t us)
{
	unsigned *pause = &surus_self->spin_pause;

	if (us < surus_settings.spin * 5) {
		*pause -= (*pause + 63) / 64;
	} else {
		surus_self->spin_pause_left = *pause;
		*pause *= 2;
	}
	*pause = *pause < LEAST_PAUSE ? LEAST_PAUSE : *pause < MOST_PAUSE ? *pause : MOST_PAUSE;
}

/* About four of five are shorter than what is usual. */
static void note_wait(uint64_t us, bool has_spun)
{
	uint64_t usual = surus_self->usual_wait, woken = surus_settings.spin / 2;

	if (!has_spun) {
		/* Awake, it would have been shorter by what it has taken to be woken. */
		us = us < woken ? 0 : us - woken;
	}
	usual = us < usual ? usual - (usual + 15) / 16 : usual + usual / 4 + 1;
	surus_self->usual_wait = usual < long_wait() ? usual : long_wait();
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
			surus_self->looked_at_socket = len < 0 ? 0 : surus_now();
			if (len == 0) {
				/* surus has closed the socket; what is in the ring, it has put there before. */
				return take_from_ring(msg);
			}
		}
		if (!surus_rings_wake() && !has_slept) {
			/* There is a message in the socket that was to wake us, of which nobody else knows. */
			surus_self->looked_at_socket = 0;
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
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = surus_self->message, .iov_len = SURUS_MESSAGE_MAX};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	ssize_t len = receive(&msg);

	if (len < 0 && errno == EINTR) {
		return -1;
	}
	if (len <= 0) {
		return 0;
	}
	clear(event);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
			memcpy(&event->body_fd, CMSG_DATA(c), sizeof(int));
		}
	}
	const char *error = msg.msg_flags & MSG_TRUNC ? "longer than any message may be" : decode(event, (size_t)len);
	if (msg.msg_flags & MSG_CTRUNC && event->id > 0 && event->id < surus_settings.requests) {
		fprintf(stderr, "surus-php: no descriptor is left for the body of a request; this worker ends, another gets the request; raise the "
		                "limit (RLIMIT_NOFILE: LimitNOFILE= of systemd, ulimit -n) where that comes again\n");
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

char *surus_event_var(const struct surus_event *event, const char *name, size_t name_len)
{
	for (uint32_t i = 0; i < event->var_count; i++) {
		if (event->vars[i].name_len == name_len && memcmp(event->vars[i].name, name, name_len) == 0) {
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
		/* The file is read at our own offset: a retried event's next worker shares the descriptor's. */
		ssize_t got = pread(event->body_fd, buffer + done, count - done, (off_t)(event->body_read + done));
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
