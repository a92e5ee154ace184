/* Copies the boot's socket pairs and pipes for each worker, so that they connect neither workers
 * nor requests. */
#include "rewind/kernel/socket_pairs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/procfs.h"
#include "base/scoreboard_layout.h"

enum { UNKNOWN = -1, SINGLE = -2 };

/* A descriptor of an end; several descriptors may share an end. */
struct end {
	int fd;
	int pair; /* its number, or one of the above */
	int side; /* of a pipe: 0 is read from, 1 is written to, 2 is both */
	bool reads; /* it may contain unread data */
	dev_t device;
	ino_t inode;
};

static struct end ends[SURUS_DESCRIPTORS * 8];
static size_t count;
static int pairs;

static bool is_socket_pair(int fd)
{
	struct sockaddr_un name;
	struct ucred peer;
	socklen_t name_len = sizeof(name), peer_len = sizeof(peer);

	return getsockname(fd, (struct sockaddr *)&name, &name_len) == 0 &&
	        name.sun_family == AF_UNIX &&
	       name_len == sizeof(sa_family_t) &&
	       getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_len) == 0 &&
	       peer.pid == getpid();
}

static const struct end *find(int fd)
{
	for (size_t i = 0; i < count; i++) {
		if (ends[i].fd == fd) {
			return &ends[i];
		}
	}
	return NULL;
}

bool surus_pairs_has(int fd)
{
	return find(fd) != NULL;
}

static void add(int fd, const struct stat *file)
{
	ends[count++] = (struct end){.fd = fd, .pair = UNKNOWN, .reads = true, .device = file->st_dev,
	        .inode = file->st_ino};
}

/* --- which ends belong together --- */

static short readable(const struct end *end)
{
	struct pollfd polled = {.fd = end->fd, .events = POLLIN | POLLPRI | POLLRDHUP};

	poll(&polled, 1, 0);
	return polled.revents;
}

/* Finds the other end. Kernels may lack unix_diag, so a byte is sent through ends that are known to
 * be empty. */
static struct end *other_end(const struct end *end)
{
	char word = 0;

	if (send(end->fd, &word, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) {
		return NULL;
	}
	for (size_t i = 0; i < count; i++) {
		if (ends[i].pair != SINGLE && readable(&ends[i]) & POLLIN) {
			return recv(ends[i].fd, &word, 1, MSG_DONTWAIT) == 1 ? &ends[i] : NULL;
		}
	}
	return NULL;
}

/* Sets the pair and the side of all descriptors of one end. */
static void put(const struct end *end, int pair, int side)
{
	const dev_t device = end->device;
	const ino_t inode = end->inode;

	for (size_t i = 0; i < count; i++) {
		if (ends[i].device == device && ends[i].inode == inode) {
			ends[i].pair = pair;
			ends[i].side = side;
		}
	}
}

static const char *reject(int fd, const char *what)
{
	static char text[320];

	snprintf(text, sizeof(text),
	         "the boot leaves a pair of sockets open (descriptor %d) %s; every worker gets such a "
	         "pair of its own, which is empty: read what is there before the boot ends, close the "
	         "pair, or make it in each request",
	         fd, what);
	return text;
}

static const char *match(void)
{
	for (size_t i = 0; i < count; i++) {
		short state = readable(&ends[i]);
		if (state & POLLHUP) {
			/* Its other end has been closed, so it leads nowhere. */
			ends[i].pair = SINGLE;
			ends[i].reads = false;
		} else if (state) {
			return reject(ends[i].fd,
			        "in which something waits to be read, or that is half shut down");
		}
	}
	for (size_t i = 0; i < count; i++) {
		if (ends[i].pair != UNKNOWN) {
			continue;
		}
		const struct end *other = other_end(&ends[i]);
		if (!other) {
			return reject(ends[i].fd, "the other end of which is no longer its own");
		}
		put(&ends[i], pairs, 0);
		put(other, pairs, 1);
		pairs++;
	}
	return NULL;
}

/* Whether it contains data although its other end may be closed. */
static bool holds(int fd)
{
	char word;
	return recv(fd, &word, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

const char *surus_pairs_add_sockets(const unsigned char *open_ones, int last)
{
	struct stat file;

	for (int fd = 3; fd <= last; fd++) {
		if (!(open_ones[fd / 8] & 1 << fd % 8) || fstat(fd, &file) != 0 ||
		        !S_ISSOCK(file.st_mode) || !is_socket_pair(fd)) {
			continue;
		}
		if (holds(fd)) {
			return reject(fd, "in which something waits to be read");
		}
		add(fd, &file);
	}
	return match();
}

bool surus_pairs_add_pipe(int fd, const struct stat *file)
{
	static const int sides[] = {[O_RDONLY] = 0, [O_WRONLY] = 1, [O_RDWR] = 2};
	struct end *end = &ends[count];

	add(fd, file);
	end->side = sides[fcntl(fd, F_GETFL) & O_ACCMODE];
	end->reads = end->side != 1;
	for (struct end *other = ends; other < end; other++) {
		if (other->device == file->st_dev && other->inode == file->st_ino) {
			end->pair = other->pair;
		}
	}
	if (end->pair == UNKNOWN) {
		end->pair = pairs++;
	}
	return !end->reads || !readable(end);
}

/* --- in a worker --- */

static void take_options(int from, int to)
{
	static const int plain[] = {SO_PASSCRED, SO_PASSSEC};
	static const int times[] = {SO_RCVTIMEO, SO_SNDTIMEO};
	static const int sizes[] = {SO_RCVBUF, SO_SNDBUF};
	struct timeval time;
	int number;

	for (size_t i = 0; i < 2; i++) {
		socklen_t len = sizeof(number);
		if (getsockopt(from, SOL_SOCKET, plain[i], &number, &len) == 0 && number) {
			setsockopt(to, SOL_SOCKET, plain[i], &number, sizeof(number));
		}
		len = sizeof(time);
		if (getsockopt(from, SOL_SOCKET, times[i], &time, &len) == 0) {
			setsockopt(to, SOL_SOCKET, times[i], &time, sizeof(time));
		}
		len = sizeof(number);
		if (getsockopt(from, SOL_SOCKET, sizes[i], &number, &len) == 0) {
			number /= 2; /* the kernel adds its own part, which doubles the value */
			setsockopt(to, SOL_SOCKET, sizes[i], &number, sizeof(number));
		}
	}
}

/* Makes the descriptor refer to the new end, with the flags of the old one. */
static bool lead(int fd, int new)
{
	int flags = fcntl(fd, F_GETFL), descriptor_flags = fcntl(fd, F_GETFD);

	return dup2(new, fd) == fd && fcntl(fd, F_SETFL, flags) == 0 &&
	        fcntl(fd, F_SETFD, descriptor_flags) == 0;
}

/* Opens both directions of a pipe in one descriptor, which pipe(2) cannot. */
static int open_both(int end)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", end);
	return open(path, O_RDWR | O_CLOEXEC);
}

static bool make(const struct end *like, int *made)
{
	int type;
	socklen_t len = sizeof(type);

	if (getsockopt(like->fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0) {
		made[2] = -1;
		return socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, made) == 0;
	}
	if (errno != ENOTSOCK || pipe2(made, O_CLOEXEC) != 0) {
		return false;
	}
	int size = fcntl(like->fd, F_GETPIPE_SZ);
	if (size != fcntl(made[0], F_GETPIPE_SZ)) {
		fcntl(made[0], F_SETPIPE_SZ, size);
	}
	made[2] = open_both(made[0]);
	return true;
}

static bool make_own(int pair)
{
	int made[3] = {-1, -1, -1};
	bool done = true;

	for (size_t i = 0; i < count; i++) {
		if (ends[i].pair != pair) {
			continue;
		}
		if (made[0] < 0 && !make(&ends[i], made)) {
			return false;
		}
		take_options(ends[i].fd, made[ends[i].side]);
		done &= lead(ends[i].fd, made[ends[i].side]);
	}
	for (int i = 0; i < 3; i++) {
		if (made[i] >= 0) {
			close(made[i]);
		}
	}
	return done;
}

const char *surus_pairs_take(void)
{
	for (int pair = 0; pair < pairs; pair++) {
		if (!make_own(pair)) {
			return "cannot give the worker pairs of sockets and pipes of its own";
		}
	}
	return NULL;
}

bool surus_pairs_are_empty(void)
{
	struct pollfd polled[64];
	nfds_t asked = 0;

	for (size_t i = 0; i < count; i++) {
		if (ends[i].reads) {
			polled[asked++] = (struct pollfd){.fd = ends[i].fd,
			        .events = POLLIN | POLLPRI | POLLRDHUP};
		}
		if (asked > 0 && (asked == 64 || i + 1 == count)) {
			if (poll(polled, asked, 0) != 0) {
				return false;
			}
			asked = 0;
		}
	}
	return true;
}
