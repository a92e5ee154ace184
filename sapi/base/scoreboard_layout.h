/* The page that every worker of a pool shares with surus: who does what, without a system call.
 *
 * The layout is written down a second time in crates/sys/src/scoreboard.rs; both assert the
 * sizes. */
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

/* One worker. The worker writes it, except for `stop`; a cache line each, so that workers do not
 * disturb each other. Every worker can write to every line, so surus believes none of it without a
 * check (docs/internals/shared-memory.md), and a worker never reads its own line: it keeps what it
 * needs in its own memory. */
struct surus_line {
	_Atomic uint32_t state;   /* enum surus_state */
	/* the request id in its hands, while state is RECEIVED to FINISHING */
	_Atomic uint32_t request;
	_Atomic uint64_t since;   /* CLOCK_MONOTONIC in microseconds: when the state was entered */
	/* of the request in its hands: the half of its ticket that is not secret */
	_Atomic uint64_t tag;
	_Atomic uint64_t taken;   /* requests taken from the inbox so far */
	_Atomic uint64_t memory;  /* resident bytes, seen now and then between requests */
	/* written by surus before the stop signal: surus_ticket_end() of the request that has to end */
	_Atomic uint64_t stop;
	_Atomic uint32_t pid;     /* whose line it is */
	uint32_t unused[3];
};
_Static_assert(sizeof(struct surus_line) == 64, "one cache line per worker");

/* A ticket is a number that no other request has. Each request id has a word for the ticket of the
 * request that uses the id now. surus writes the ticket there before it sends the request. The
 * worker that takes the request from the inbox claims it: it swaps the ticket for SURUS_CLAIMED, in
 * one atomic step. So however often a request is found in the inbox, one worker runs it; and surus
 * can revoke a request that nobody has begun, by the same step. Half of a ticket is secret: the
 * message and the holder's line carry the lower half only, and the holder shows surus the upper
 * half with its answer. */
enum { SURUS_CLAIMED = 0 };

/* What surus writes to have the holder of a request end it: into the word when its client has gone,
 * into the holder's line at its deadline. The secret half of the ticket does not follow from it
 * (`Ticket::end` in scoreboard.rs). */
static inline uint64_t surus_ticket_end(uint64_t ticket)
{
	uint64_t mixed = ticket;

	mixed = (mixed ^ mixed >> 33) * UINT64_C(0xff51afd7ed558ccd);
	mixed = (mixed ^ mixed >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
	mixed ^= mixed >> 33;
	return mixed >> 32 << 32 | (uint32_t)~ticket;
}
/* The scoreboard is an array of lines, one per worker, then the word of each request id. */
#define SURUS_SCOREBOARD_SIZE(workers, requests) \
	((size_t)(workers) * sizeof(struct surus_line) + (size_t)(requests) * sizeof(uint64_t))

#endif
