/* Opens files of /proc/self. */
#include "base/procfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <php.h>

int surus_procfs_open(const char *path)
{
	int dumpable = prctl(PR_GET_DUMPABLE);

	prctl(PR_SET_DUMPABLE, 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	prctl(PR_SET_DUMPABLE, dumpable);
	return fd;
}

bool surus_has_threads(void)
{
	struct stat tasks;

	if (__libc_single_threaded) {
		return false; /* and has been since the boot, because libc's variable is restored, too */
	}
	/* The directory has a link for each thread and two more. */
	return stat("/proc/self/task", &tasks) != 0 || tasks.st_nlink > 3;
}
