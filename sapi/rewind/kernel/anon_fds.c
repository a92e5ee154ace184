/* Handles the boot's descriptors without a file: each worker gets its own eventfds, which libraries
 * use to wake themselves; other kinds would be shared and are rejected. */
#include "rewind/kernel/anon_fds.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/procfs.h"
#include "base/replace_fd.h"
#include "base/scoreboard_layout.h"

/* Linux's name of the kind; NULL if the descriptor has a file. */
static const char *kind(int fd)
{
	static char name[64];
	char path[64];
	ssize_t len;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	len = readlink(path, name, sizeof(name) - 1);
	name[len < 0 ? 0 : len] = '\0';
	return strncmp(name, "anon_inode:", 11) == 0 ? name + 11 : NULL;
}

const char *surus_anon_fds_find_shared(int fd)
{
	static const struct {
		const char *kind, *name;
	} shared[] = {
		{"inotify", "an inotify instance"}, {"[eventpoll]", "an epoll instance"},
		{"[timerfd]", "a timer (timerfd)"},
		{"[fanotify]", "a fanotify group"}, {"[io_uring]", "an io_uring"},
		{"[userfaultfd]", "a userfaultfd"},
	};
	const char *its = kind(fd);

	for (size_t i = 0; its && i < sizeof(shared) / sizeof(*shared); i++) {
		if (strcmp(its, shared[i].kind) == 0) {
			return shared[i].name;
		}
	}
	return NULL;
}

/* A value of /proc/self/fdinfo (proc(5)); 0 if it is missing. */
static uint64_t info(int fd, const char *key, int base)
{
	char path[64], text[512];
	const char *value;
	ssize_t len;
	int file;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	if ((file = surus_procfs_open(path)) < 0) {
		return 0;
	}
	len = read(file, text, sizeof(text) - 1);
	close(file);
	text[len < 0 ? 0 : len] = '\0';
	value = strstr(text, key);
	return value ? strtoull(value + strlen(key), NULL, base) : 0;
}

bool surus_anon_fds_take_counter(int fd, uint64_t *count)
{
	const char *its = kind(fd);
	int flags, own;

	if (!its || strcmp(its, "[eventfd]") != 0) {
		return false;
	}
	*count = info(fd, "eventfd-count:", 16);
	flags = EFD_CLOEXEC | (fcntl(fd, F_GETFL) & O_NONBLOCK ? EFD_NONBLOCK : 0);
	if (info(fd, "eventfd-semaphore:", 10)) {
		flags |= EFD_SEMAPHORE;
	}
	if ((own = eventfd(0, flags)) >= 0) {
		surus_fd_replace(fd, own);
		surus_anon_fds_restore_counter(fd, *count);
	}
	return true;
}

/* With EFD_SEMAPHORE each read returns one. */
enum { AT_MOST = 4096 };

bool surus_anon_fds_restore_counter(int fd, uint64_t count)
{
	struct pollfd readable = {.fd = fd, .events = POLLIN};
	uint64_t left;

	for (int n = 0; poll(&readable, 1, 0) == 1 && readable.revents & POLLIN; n++) {
		if (n == AT_MOST || read(fd, &left, sizeof(left)) != sizeof(left)) {
			return false;
		}
	}
	return count == 0 || write(fd, &count, sizeof(count)) == sizeof(count);
}
