/* The page that every worker of a pool shares with surus: who does what, without a system call.
 *
 * The layout is written down a second time in crates/sys/src/scoreboard.rs; both assert the sizes. */
#ifndef SURUS_SCOREBOARD_H
#define SURUS_SCOREBOARD_H

#include <stdatomic.h>
#include <stdint.h>

enum surus_state {
	SURUS_STARTING = 0,  /* forked, not yet waiting */
	SURUS_IDLE = 1,      /* waits at the inbox */
	SURUS_RECEIVED = 2,  /* holds an event; no PHP of it has run */
	SURUS_RUNNING = 3,   /* runs the script */
	SURUS_FINISHING = 4, /* has answered (fastcgi_finish_request) and goes on */
	SURUS_RETIRED = 5,   /* takes no more events */
};

/* Request ids that are remembered of each worker: of as many events as may be answered and not yet read, in an outbox that is full of answers
 * without a word. */
enum { SURUS_TOOK = 2048 };

/* One worker. The worker writes it, except for `stop`; a cache line each, so that workers do not disturb each other. */
struct surus_line {
	_Atomic uint32_t state;   /* enum surus_state */
	_Atomic uint32_t request; /* the request id in its hands, while state is RECEIVED to FINISHING */
	_Atomic uint64_t since;   /* CLOCK_MONOTONIC in microseconds: when the state was entered */
	_Atomic uint64_t taken;   /* events taken from the inbox so far; numbers the event in its hands */
	_Atomic uint64_t memory;  /* resident bytes, seen now and then between events */
	_Atomic uint64_t stop;    /* written by surus before the stop signal: the number of the event that has to end */
	_Atomic uint32_t pid;     /* whose line it is */
	uint32_t unused[5];
};
_Static_assert(sizeof(struct surus_line) == 64, "one cache line per worker");

/* The request ids of a worker's last events, each at its number modulo their count. */
struct surus_took {
	_Atomic uint16_t requests[SURUS_TOOK];
};

/* The scoreboard is an array of lines, one per worker, then what each has taken, then one byte per request id, which surus sets when nobody waits
 * for that event any more. */
#define SURUS_SCOREBOARD_SIZE(workers, requests) \
	((size_t)(workers) * (sizeof(struct surus_line) + sizeof(struct surus_took)) + (size_t)(requests))

#endif
