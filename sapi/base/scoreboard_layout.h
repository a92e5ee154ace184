/* Layout of the scoreboard, the memory in which workers show Surus their state without a system
 * call.
 *
 * crates/sys/src/scoreboard.rs repeats the layout; both assert the sizes. */
#ifndef SURUS_BASE_SCOREBOARD_LAYOUT_H
#define SURUS_BASE_SCOREBOARD_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>

enum surus_state {
	SURUS_STARTING = 0, /* forked, not yet waiting */
	SURUS_IDLE = 1, /* waits for a request */
	SURUS_RECEIVED = 2, /* holds a request; its script has not started */
	SURUS_RUNNING = 3, /* runs the script */
	SURUS_FINISHING = 4, /* has answered (fastcgi_finish_request) and continues */
	SURUS_EXITING = 5, /* takes no more requests */
};

/* One worker's line. The worker writes it, except for `stop` and `slow`. Each line is a cache line
 * of its own, so that workers do not slow each other down. Every worker can write to every line. So
 * Surus checks each value before it uses it (docs/internals/shared-memory.md), and a worker never
 * reads its own line but keeps a copy. */
struct surus_line {
	_Atomic uint32_t state; /* enum surus_state */
	/* slot of the request it holds, while state is RECEIVED to FINISHING */
	_Atomic uint32_t slot;
	_Atomic uint64_t since; /* when the state was entered, in microseconds of CLOCK_MONOTONIC */
	/* the half of the held request's ticket that is not secret */
	_Atomic uint64_t tag;
	_Atomic uint64_t taken; /* requests taken so far */
	_Atomic uint64_t memory; /* resident bytes, measured now and then between requests */
	/* written by Surus before the stop signal: surus_scoreboard_ticket_end() of the request to
	 * interrupt */
	_Atomic uint64_t stop;
	_Atomic uint32_t pid; /* the worker's process id */
	/* written by Surus before it sets the interrupt flag: tag of the request whose backtrace it
	 * asks for (php/slow_request.c); no ticket has the tag 0 */
	_Atomic uint32_t slow;
	uint32_t unused[2];
};
_Static_assert(sizeof(struct surus_line) == 64, "one cache line per worker");

/* A ticket is a number that no other request has. Each slot has a word for the ticket of the
 * request that is in it now. Surus writes the ticket before it sends the request. The worker
 * that receives the request claims it: it replaces the ticket by SURUS_CLAIMED in one atomic step.
 * So one worker runs a request, however often it is found in the ring, and Surus can revoke an
 * unclaimed request by the same step. Half of the ticket is secret: the message and the holder's
 * line contain the lower half only, and the holder sends Surus the upper half with its response. */
enum { SURUS_CLAIMED = 0 };

/* Returns what Surus writes to make the holder end a request: into the word if the client has
 * closed it, into the holder's line at the deadline. The secret half of the ticket cannot be
 * derived from it (`Ticket::end` in scoreboard.rs). */
static inline uint64_t surus_scoreboard_ticket_end(uint64_t ticket)
{
	uint64_t mixed = ticket;

	mixed = (mixed ^ mixed >> 33) * UINT64_C(0xff51afd7ed558ccd);
	mixed = (mixed ^ mixed >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
	mixed ^= mixed >> 33;
	return mixed >> 32 << 32 | (uint32_t)~ticket;
}
/* The scoreboard is an array of lines, one per worker, then one word per slot. */
#define SURUS_SCOREBOARD_SIZE(workers, slots) \
	((size_t)(workers) * sizeof(struct surus_line) + (size_t)(slots) * sizeof(uint64_t))

#endif
