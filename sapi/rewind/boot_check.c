/* Rejects a boot that leaves something open that its workers cannot share: connections, pipes,
 * threads, child processes, files that cannot be opened again, too many descriptors. */
#include "rewind/boot_check.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

#include <php.h>

#include "base/descriptors.h"
#include "base/procfs.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "php/streams.h"
#include "rewind/kernel/anon_fds.h"
#include "rewind/kernel/boot_fds.h"
#include "rewind/kernel/log_fds.h"
#include "rewind/kernel/socket_pairs.h"
#include "rewind/kernel/temp_files.h"

static char text[768];

/* --- connections --- */

static void name_peer(int fd, char *text, size_t size)
{
	struct sockaddr_storage address;
	socklen_t len = sizeof(address);
	char host[256], port[32];

	if (getpeername(fd, (struct sockaddr *)&address, &len) != 0) {
		len = sizeof(address);
		if (getsockname(fd, (struct sockaddr *)&address, &len) != 0) {
			snprintf(text, size, "?");
			return;
		}
	}
	if (address.ss_family == AF_UNIX) {
		const char *path = ((struct sockaddr_un *)&address)->sun_path;
		snprintf(text, size, "unix:%s", len > sizeof(sa_family_t) ? path : "");
	} else if (getnameinfo((struct sockaddr *)&address, len, host, sizeof(host), port, sizeof(port),
	                       NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
		snprintf(text, size, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
	} else {
		snprintf(text, size, "?");
	}
}

static bool is_allowed(const char *peer)
{
	for (char **allowed = surus_settings.sockets; allowed && *allowed; allowed++) {
		if (strcmp(*allowed, peer) == 0) {
			return true;
		}
	}
	return false;
}

static const char *reject_connection(int fd)
{
	char peer[300];

	name_peer(fd, peer, sizeof(peer));
	if (surus_pairs_has(fd) || is_allowed(peer)) {
		return NULL;
	}
	snprintf(text, sizeof(text),
	         "the boot leaves a connection to %s open, which the workers would share; close it "
	         "before the boot ends, connect in each request, or name it in engine.shared_sockets "
	         "if they may share it",
	         peer);
	return text;
}

/* --- files --- */

static void read_path(int fd, char *path, size_t size)
{
	char link[64];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t len = readlink(link, path, size - 1);
	path[len < 0 ? 0 : len] = '\0';
}

/* Checks that each worker can open the file again (rewind/kernel/kernel_state.c). Opening it here
 * would, at the close, release locks that a library has on it. */
static const char *reject_file(int fd)
{
	char link[64], path[300];
	int flags = fcntl(fd, F_GETFL), mode = flags & O_ACCMODE;
	int wanted = (mode != O_WRONLY ? R_OK : 0) | (mode != O_RDONLY ? W_OK : 0);

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (flags & O_PATH || access(link, wanted) == 0) {
		return NULL;
	}
	int error = errno;
	read_path(fd, path, sizeof(path));
	snprintf(text, sizeof(text),
	         "the boot leaves %s open (descriptor %d), which each worker has to open for itself, "
	         "and cannot: %s; close it before the boot ends, open it in each request, or let the "
	         "user that PHP runs as %s it",
	         path, fd, strerror(error), wanted == R_OK ? "read" : "read and write");
	return text;
}

/* A worker opens about ten descriptors before its first request and cannot work without them. */
static const char *reject_number(int last)
{
	enum { ENOUGH = 32 };
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	if (last + ENOUGH < (long long)limit.rlim_cur && last + ENOUGH < SURUS_DESCRIPTORS * 8) {
		return NULL;
	}
	snprintf(text, sizeof(text),
	         "the boot leaves so many files open that its workers could hardly open any: a process "
	         "may have %llu (RLIMIT_NOFILE), on this engine %d at most; close some before the "
	         "boot ends, or raise the limit (LimitNOFILE= of systemd, ulimit -n)",
	         (unsigned long long)limit.rlim_cur, SURUS_DESCRIPTORS * 8);
	return text;
}

/* --- pipes --- */

/* Describes how the descriptor was opened, as far as that is known. */
static void name_opener(int fd, char *name, size_t size)
{
	const php_stream *stream = surus_streams_find(fd);

	if (!stream) {
		snprintf(name, size, "opened by a library, not by PHP");
	} else if (stream->orig_path) {
		snprintf(name, size, "opened as %s, Resource id #" ZEND_LONG_FMT, stream->orig_path,
		        (zend_long)stream->res->handle);
	} else {
		/* Only these streams have no name. */
		snprintf(name, size, "opened by popen() or proc_open(), Resource id #" ZEND_LONG_FMT,
		        (zend_long)stream->res->handle);
	}
}

static bool is_same(const struct stat *pipe, int fd)
{
	struct stat file;
	return fstat(fd, &file) == 0 && file.st_dev == pipe->st_dev && file.st_ino == pipe->st_ino;
}

/* Whether this process has both ends of an anonymous pipe, as libraries use to wake themselves. */
static bool has_both_ends(const struct stat *pipe, int last)
{
	bool reads = false, writes = false;

	for (int fd = 3; fd <= last; fd++) {
		if (is_same(pipe, fd)) {
			int mode = fcntl(fd, F_GETFL) & O_ACCMODE;
			reads |= mode != O_WRONLY;
			writes |= mode != O_RDONLY;
		}
	}
	return reads && writes;
}

static const char *reject_pipe(int fd, const struct stat *pipe, int last)
{
	char path[300], opener[300];

	if (!surus_boot_fds_has(fd) || is_same(pipe, STDIN_FILENO)) {
		return NULL;
	}
	if (is_same(pipe, STDOUT_FILENO) || is_same(pipe, STDERR_FILENO)) {
		surus_log_add(fd);
		return NULL;
	}
	name_opener(fd, opener, sizeof(opener));
	memcpy(path, "fifo:", 5);
	read_path(fd, path + 5, sizeof(path) - 5);
	if (path[5] == '/') {
		if (is_allowed(path)) {
			return NULL;
		}
		snprintf(text, sizeof(text),
		         "the boot leaves the FIFO %s open (descriptor %d, %s), which the workers would "
		         "share; close it before the boot ends, open it in each request, or name it in "
		         "engine.shared_sockets, as %s, if they may share it",
		         path + 5, fd, opener, path);
		return text;
	}
	if (has_both_ends(pipe, last)) {
		if (surus_pairs_add_pipe(fd, pipe)) {
			return NULL;
		}
		snprintf(text, sizeof(text),
		         "the boot leaves a pipe open (descriptor %d, %s) in which something waits to be "
		         "read; every worker gets such a pipe of its own, which is empty: read what is "
		         "there before the boot ends, or make the pipe in each request",
		         fd, opener);
		return text;
	}
	snprintf(text, sizeof(text),
	         "the boot leaves a pipe open (descriptor %d, %s), which the workers would share; "
	         "close it before the boot ends, or open it in each request",
	         fd, opener);
	return text;
}

static const char *reject_anonymous(int fd)
{
	const char *shared = surus_anon_fds_find_shared(fd);

	if (!shared) {
		return NULL;
	}
	snprintf(text, sizeof(text),
	         "the boot leaves %s open (descriptor %d), which the workers would share; close it "
	         "before the boot ends, or open it in each request",
	         shared, fd);
	return text;
}

/* --- all of it --- */

const char *surus_boot_check(void)
{
	static unsigned char open_ones[SURUS_DESCRIPTORS];
	const char *why;
	int last;

	if (!surus_boot_fds_save(open_ones, &last)) {
		/* Otherwise /proc is missing; code that needs it reports that. */
		return errno == EMFILE ? reject_number(INT_MAX / 2) : NULL;
	}
	if ((why = reject_number(last)) || (why = surus_pairs_add_sockets(open_ones, last))) {
		return why;
	}
	for (int fd = 3; fd <= last; fd++) {
		struct stat file;

		if (!(open_ones[fd / 8] & 1 << fd % 8) || fd == SURUS_FD_CONTROL || fd == SURUS_FD_INBOX ||
		        fd == SURUS_FD_WAITING ||
		    fstat(fd, &file) != 0) {
			continue;
		}
		if (S_ISSOCK(file.st_mode)) {
			why = reject_connection(fd);
		} else if (S_ISFIFO(file.st_mode)) {
			why = reject_pipe(fd, &file, last);
		} else if (surus_boot_fds_has(fd) && (S_ISREG(file.st_mode) || S_ISDIR(file.st_mode))) {
			surus_temp_file_add(fd, &file);
			why = reject_file(fd);
		} else if (surus_boot_fds_has(fd)) {
			why = reject_anonymous(fd);
		}
		if (why) {
			return why;
		}
	}
	if (surus_procfs_has_threads()) {
		return "the boot leaves a thread running, which no fork has; end it before the boot ends";
	}
	if (waitpid(-1, NULL, WNOHANG) == 0) {
		return "the boot leaves a child process running; end it before the boot ends";
	}
	return NULL;
}
