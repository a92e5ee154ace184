/* Redirects the boot's php://stderr and php://stdout, which lead to the master process's output, to
 * each worker's own log.
 *
 * Each gets an open file description of its own, so that a request's changes to it do not affect
 * other workers. */
#include "rewind/kernel/log_fds.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process_state.h"
#include "base/procfs.h"
#include "base/replace_fd.h"
#include "base/scoreboard_layout.h"
#include "rewind/kernel/boot_fds.h"

static unsigned char log_fds[SURUS_DESCRIPTORS]; /* descriptors, as bits */

void surus_log_add(int fd)
{
	log_fds[fd / 8] |= (unsigned char)(1 << fd % 8);
}

bool surus_log_is(int fd)
{
	return fd < SURUS_DESCRIPTORS * 8 && log_fds[fd / 8] & 1 << fd % 8;
}

int surus_log_open(int log, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", log);
	int own = open(path, (flags & (O_ACCMODE | O_APPEND | O_NONBLOCK)) | O_CLOEXEC);
	return own >= 0 ? own : dup(log);
}

static bool leads_to(int fd, int other)
{
	struct stat file, same;

	return fstat(fd, &file) == 0 && fstat(other, &same) == 0 && file.st_dev == same.st_dev &&
	        file.st_ino == same.st_ino;
}

void surus_log_take(void)
{
	static unsigned char open_ones[SURUS_DESCRIPTORS];
	int last;

	if (!surus_boot_fds_save(open_ones, &last)) {
		return;
	}
	for (int fd = 3; fd <= last; fd++) {
		if (!(open_ones[fd / 8] & 1 << fd % 8) ||
		        !(leads_to(fd, STDOUT_FILENO) || leads_to(fd, STDERR_FILENO))) {
			continue;
		}
		int own = surus_log_open(surus_process->log, fcntl(fd, F_GETFL));
		if (own >= 0) {
			surus_fd_replace(fd, own);
		}
	}
}
