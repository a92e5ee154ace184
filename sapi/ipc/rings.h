/* Request ring, response rings and doorbells: memory that a pool's workers share with Surus.
 *
 * While the receiver is unparked, neither side needs a system call. The sockets carry what does not
 * fit. crates/sys/src/rings.rs repeats the layout; both assert the sizes. */
#ifndef SURUS_IPC_RINGS_H
#define SURUS_IPC_RINGS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SURUS_RINGS_LINE = 64, /* bytes of a cache line */
	SURUS_OUTBOX_RING = 64 * 1024, /* bytes of each response ring */
	/* bytes of the request ring: 32 KiB for each worker, within these limits, rounded up to a power
	 * of two */
	SURUS_INBOX_RING_LEAST = 64 * 1024,
	SURUS_INBOX_RING_MOST = 4 * 1024 * 1024,
	SURUS_INBOX_RING_EACH = 32 * 1024,
	SURUS_IN_SOCKET = 1, /* length of an entry that announces a message in the request socket */
};

enum surus_wakeup {
	SURUS_WAKEUP_SUPPRESSED = 0, /* Surus polls before it blocks */
	SURUS_WAKEUP_NEEDED = 1, /* the next worker must wake Surus and set SURUS_WAKEUP_SUPPRESSED */
	SURUS_WAKEUP_ALWAYS = 2, /* each response frame must wake Surus */
};

/* What a worker does about the request ring; the worker's doorbell. For a request Surus resets the
 * doorbell of one worker that polls, or else of one that blocks, which it then wakes. */
enum surus_doorbell {
	SURUS_WORKING = 0, /* serves a request, or takes from the ring before it does anything else */
	SURUS_POLLING = 1, /* busy-polls the ring */
	SURUS_BLOCKED = 2, /* waits by futex(2) until its doorbell changes, or is about to */
};

/* The header. An array of doorbells follows it (enum surus_doorbell, one for each worker), and one
 * with a bit for each worker that has put a frame into its response ring. */
struct surus_rings {
	_Alignas(SURUS_RINGS_LINE) _Atomic uint32_t need_wakeup; /* enum surus_wakeup */
	/* when Surus last polled, in microseconds of CLOCK_MONOTONIC */
	_Atomic uint64_t polled_at;
	/* microseconds for which a worker polls for its next request before it blocks; Surus decides
	 * (src/busy_poll.rs) */
	_Alignas(SURUS_RINGS_LINE) _Atomic uint32_t poll_budget;
};
_Static_assert(sizeof(struct surus_rings) == 128, "two cache lines");

/* Bytes between `head` and `tail`, modulo the ring's size, are unread; both only grow. A ring has
 * one writer. The request ring has many readers: each copies the entry at the head and owns it if
 * it then moves the head in one atomic step. */
struct surus_ring {
	_Alignas(SURUS_RINGS_LINE) _Atomic uint64_t head;
	_Alignas(SURUS_RINGS_LINE) _Atomic uint64_t tail;
};
_Static_assert(sizeof(struct surus_ring) == 128, "two cache lines");

/* Header of an entry of the request ring. Entries are padded to a multiple of its size, so that a
 * header never wraps around. */
struct surus_ring_request {
	uint32_t len;
	/* the lower half of the entry's position; a leftover of an earlier entry has another value */
	uint32_t at;
};
_Static_assert(sizeof(struct surus_ring_request) == 8, "as in rings.rs");

/* Header of a response frame. A frame contains whole records: all records of one request, or its
 * response and then its end. */
struct surus_ring_frame {
	uint32_t len;
	uint32_t pid; /* process id of the writer, which may have exited when the frame is read */
	uint64_t number; /* number of the request: `taken` of the scoreboard */
};
_Static_assert(sizeof(struct surus_ring_frame) == 16, "as in rings.rs");

/* In the master process: maps the rings. False: the reason is on stderr. */
bool surus_rings_open(int fd);
/* In a worker at its start. */
void surus_rings_begin(void);
/* Takes the next entry of the request ring, of at most `room` bytes. 0: the ring is empty. An entry
 * of SURUS_IN_SOCKET bytes says that the request socket has a message. */
size_t surus_rings_take(unsigned char *to, size_t room);
/* Whether the request ring has an entry. */
bool surus_rings_has_entry(void);
/* Sets this worker's doorbell. After SURUS_POLLING and SURUS_BLOCKED, Surus may count on this
 * worker for a request. So the worker sets SURUS_WORKING and takes what is in the ring before it
 * polls, blocks or does anything else. */
void surus_rings_set_doorbell(enum surus_doorbell state);
/* Waits until the doorbell is not SURUS_BLOCKED. False: interrupted by a signal. */
bool surus_rings_wait(void);
/* Microseconds for which to poll for a request before blocking. */
uint32_t surus_rings_poll_budget(void);
/* Puts a frame about the current request into the response ring. False: there is no room. */
bool surus_rings_write_response(const unsigned char *frame, size_t len);
/* After that: whether this worker must wake Surus. If true, the caller must do so. */
bool surus_rings_must_notify(void);
/* Wakes Surus. */
void surus_rings_wake_surus(void);

#endif
