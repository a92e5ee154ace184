/* State of this process that several modules share and a rewind does not restore: identity, state,
 * counters. State that only one module needs is in that module. */
#ifndef SURUS_BASE_PROCESS_STATE_H
#define SURUS_BASE_PROCESS_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/scoreboard_layout.h"

/* Whether a script has forked this process, and from which process. */
enum surus_child { SURUS_NO_CHILD = 0, SURUS_CHILD_OF_WORKER, SURUS_CHILD_OF_MASTER };

/* Lies in persistent memory. */
struct surus_process {
	/* this process's line of the scoreboard; in the master process and in a script's child,
	 * `nowhere` */
	struct surus_line *line;
	struct surus_line nowhere;
	/* A copy of the line's state for this process; other processes can write to the line. */
	enum surus_state state;
	uint64_t since;
	uint32_t index; /* of this worker in its pool */
	pid_t pid;
	uint64_t taken; /* requests taken */
	uint64_t taken_at; /* when the last request was taken, in microseconds of CLOCK_MONOTONIC */
	uint64_t served; /* requests taken whose client still waited */
	bool forks_workers; /* Surus forks a worker now, not a script */
	enum surus_child child;
	int exit_status; /* this worker's exit status, once it is decided */
	int statm; /* /proc/self/statm */
	bool has_no_client; /* a warm-up or a script's child: the response is discarded */
	bool runs_script; /* the request's handler or its shutdown functions run */
	/* PHP's virtual machine was interrupted: Surus may have written to this process's memory */
	bool was_interrupted;
	/* the worker's own log, which becomes its stdout and stderr */
	int log;
};

extern struct surus_process *surus_process;

/* Allocates surus_process; in the master process, before anything else. False: no memory. */
bool surus_process_create(void);

/* Makes the worker's log its stdout and stderr. Until the boot has ended they are the master
 * process's, which Surus quotes if a boot fails. */
void surus_process_redirect_stdio(void);

/* Exits a booted worker before its first request. If it is the first worker, the boot has
 * failed. */
_Noreturn void surus_process_abort_setup(const char *why);

#endif
