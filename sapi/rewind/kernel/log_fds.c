/* php://stderr and php://stdout of a boot lead to what the template says. A worker's are to lead to
 * its own log, and by themselves: what a request does to them, nobody else is to meet. */
#include "rewind/kernel/log_fds.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process_state.h"
#include "base/procfs.h"
#include "base/scoreboard_layout.h"
#include "rewind/kernel/boot_fds.h"

static unsigned char ours[SURUS_DESCRIPTORS]; /* descriptors, as bits */

void surus_log_note(int fd)
{
	ours[fd / 8] |= (unsigned char)(1 << fd % 8);
}

bool surus_log_is(int fd)
{
	return fd < SURUS_DESCRIPTORS * 8 && ours[fd / 8] & 1 << fd % 8;
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

	if (!surus_kernel_note_boot(open_ones, &last)) {
		return;
	}
	for (int fd = 3; fd <= last; fd++) {
		if (!(open_ones[fd / 8] & 1 << fd % 8) ||
		        !(leads_to(fd, STDOUT_FILENO) || leads_to(fd, STDERR_FILENO))) {
			continue;
		}
		int own = surus_log_open(surus_self->log, fcntl(fd, F_GETFL)), descriptor_flags =
		        fcntl(fd, F_GETFD);
		if (own >= 0) {
			dup2(own, fd);
			fcntl(fd, F_SETFD, descriptor_flags);
			close(own);
		}
	}
}
