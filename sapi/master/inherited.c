/* Detects changes to what workers inherit from the master process: limits, scheduling, CPUs. */
#include "master/inherited.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* sched_setattr(2) */
struct scheduling {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
	uint32_t util_min, util_max;
};

enum { CPUS = 8192, OF_PROCESS = 1 /* IOPRIO_WHO_PROCESS */ };

struct inherited {
	struct rlimit limits[RLIM_NLIMITS];
	struct scheduling scheduling;
	unsigned char cpus[CPUS / 8];
	long io_priority;
	char oom_score_adj[16];
	/* Of the session, which every worker shares: its name, and its nice value. */
	char autogroup[64];
};

static struct inherited saved;

static void read_file(const char *path, char *text, size_t size)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);

	if (file >= 0) {
		(void)!read(file, text, size);
		close(file);
	}
}

/* What the kernel does not tell stays zero. */
static void get(struct inherited *found)
{
	memset(found, 0, sizeof(*found));
	for (int resource = 0; resource < RLIM_NLIMITS; resource++) {
		getrlimit((__rlimit_resource_t)resource, &found->limits[resource]);
	}
	syscall(SYS_sched_getattr, 0, &found->scheduling, sizeof(found->scheduling), 0);
	/* The kernel's time slice, which depends on the number of CPUs. */
	found->scheduling.runtime = 0;
	syscall(SYS_sched_getaffinity, 0, sizeof(found->cpus), found->cpus);
	found->io_priority = syscall(SYS_ioprio_get, OF_PROCESS, 0);
	read_file("/proc/self/oom_score_adj", found->oom_score_adj, sizeof(found->oom_score_adj));
	/* Without CONFIG_SCHED_AUTOGROUP it is missing. */
	read_file("/proc/self/autogroup", found->autogroup, sizeof(found->autogroup));
}

void surus_inherited_save(void)
{
	get(&saved);
}

/* A file that could not be opened once, as there were too many open files, tells nothing. */
static void skip_unread(char *now, const char *before, size_t size)
{
	if (!*now || !*before) {
		memcpy(now, before, size);
	}
}

bool surus_inherited_has_changed(void)
{
	struct inherited now;

	get(&now);
	skip_unread(now.oom_score_adj, saved.oom_score_adj, sizeof(now.oom_score_adj));
	skip_unread(now.autogroup, saved.autogroup, sizeof(now.autogroup));
	return memcmp(&now, &saved, sizeof(now)) != 0;
}
