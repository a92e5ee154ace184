/* What belongs to this process alone, and stays when everything else is put back. */
#ifndef SURUS_BASE_PROCESS_STATE_H
#define SURUS_BASE_PROCESS_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/scoreboard_layout.h"

/* Has a script forked this process, and from which? */
enum surus_child { SURUS_NO_CHILD = 0, SURUS_CHILD_OF_WORKER, SURUS_CHILD_OF_TEMPLATE };

/* A rewound process gets all its memory back as it was when its application had booted, but for
 * this: who it is, what it holds, what it has counted. It lies in a mapping of its own, which is
 * never put back. */
struct surus_self {
	/* our line of the scoreboard; the template's leads nowhere, and a script's child's too */
	struct surus_line *line;
	struct surus_line nowhere;
	/* What our line says, for ourselves: others can write to the line. */
	enum surus_state state;
	uint64_t since;
	uint32_t place;          /* which of the workers we are */
	pid_t pid;               /* and as which process */
	uint64_t taken;          /* events taken from the inbox */
	uint64_t taken_at;       /* CLOCK_MONOTONIC in microseconds: when the last one was */
	uint64_t served;         /* those of them that somebody waited for */
	bool forks_workers;      /* what is forked now is our doing, and not a script's */
	enum surus_child child;
	int exit_status;         /* with which this worker ends, once that is decided */
	int statm;               /* /proc/self/statm */
	bool letters_are_ours;   /* all that is in our place's outbox */
	bool has_no_client;      /* a warm-up, or a script's child: its response is discarded */
	bool runs_script;        /* for a request: its handler, or what it has registered for the end */
	bool is_spent;           /* this process cannot run the prepended and appended files again */
	bool said;               /* surus knows that this worker waits for events */
	/* what we write to stdout and stderr goes here, once we speak for ourselves */
	int log;
};

extern struct surus_self *surus_self;

/* Allocates surus_self; in the template, before anything else. False: no memory. */
bool surus_self_create(void);

/* From here on stdout and stderr are this worker's. Until it has booted they are the template's,
 * which surus quotes when a boot fails. */
void surus_worker_speak(void);

/* Ends a booted worker before its first event; where that is the first of all, the boot has
 * failed. */
_Noreturn void surus_worker_cannot_begin(const char *why);

#endif
