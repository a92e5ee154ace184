/* Opens files of /proc/self. */
#include "base/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <php.h>

/* Groups without a name and without files. A user namespace may lack the first one. */
static const gid_t guards[] = {(gid_t)-19, 65533};

bool surus_procfs_guard(gid_t group)
{
	for (size_t i = 0; i < sizeof(guards) / sizeof(*guards); i++) {
		if (guards[i] != group && setresgid(group, group, guards[i]) == 0) {
			return true;
		}
	}
	return false;
}

bool surus_procfs_unguard(void)
{
	return setresgid((gid_t)-1, (gid_t)-1, getegid()) == 0;
}

static bool is_guarded(void)
{
	gid_t real, effective, saved;

	return getresgid(&real, &effective, &saved) == 0 && saved != real;
}

static int open_with(const char *path, int flags)
{
	int dumpable = prctl(PR_GET_DUMPABLE), fd = open(path, flags | O_CLOEXEC);

	/* Unless it is guarded, other processes could open this one's memory meanwhile. */
	if (fd < 0 && errno == EACCES && is_guarded()) {
		prctl(PR_SET_DUMPABLE, 1);
		fd = open(path, flags | O_CLOEXEC);
		/* With the sysctl fs.suid_dumpable = 2, it was 2, which prctl(2) refuses to set. */
		prctl(PR_SET_DUMPABLE, dumpable == 1);
	}
	return fd;
}

int surus_procfs_open(const char *path)
{
	return open_with(path, O_RDONLY);
}

int surus_procfs_open_memory(void)
{
	return open_with("/proc/self/mem", O_RDWR);
}

bool surus_procfs_has_threads(void)
{
	struct stat tasks;

	if (__libc_single_threaded) {
		return false; /* and has been since the boot, because libc's variable is restored, too */
	}
	/* The directory has a link for each thread and two more. */
	return stat("/proc/self/task", &tasks) != 0 || tasks.st_nlink > 3;
}
