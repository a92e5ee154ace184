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
};

static struct inherited saved;

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
	int file = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);
	if (file >= 0) {
		(void)!read(file, found->oom_score_adj, sizeof(found->oom_score_adj));
		close(file);
	}
}

void surus_inherited_save(void)
{
	get(&saved);
}

bool surus_inherited_has_changed(void)
{
	struct inherited now;

	get(&now);
	return memcmp(&now, &saved, sizeof(now)) != 0;
}
