/* The inbox and the outboxes as rings in memory that a pool's workers share with surus: as long as who is to hear of an event or an answer is
 * awake, neither side needs a system call. Beside them are the sockets, which carry what does not fit, and wake who sleeps.
 *
 * The layout is written down a second time in crates/sys/src/rings.rs; both assert the sizes. */
#ifndef SURUS_RINGS_H
#define SURUS_RINGS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SURUS_RINGS_LINE = 64,                 /* bytes of a cache line */
	SURUS_OUTBOX_RING = 64 * 1024,         /* bytes of each outbox */
	SURUS_INBOX_RING_LEAST = 64 * 1024,    /* bytes of the inbox: 32 KiB for each worker, between these, and a power of two */
	SURUS_INBOX_RING_MOST = 4 * 1024 * 1024,
	SURUS_INBOX_RING_EACH = 32 * 1024,
};

enum surus_sleep {
	SURUS_AWAKE = 0,  /* it looks for letters before it sleeps */
	SURUS_ASLEEP = 1, /* until a worker wakes it, and says so by SURUS_AWAKE */
	SURUS_UNKNOWN = 2, /* it does not say: each letter wakes it */
};

/* At the beginning. Behind it are a bit for each worker that sleeps, then one for each that spins, then one for each that has put a letter into its outbox. Surus takes the
 * bit of a sleeper away when it sends a message to wake it, which says whose it was; who gets another's gives it back. So a bit that is wrong,
 * because somebody was killed in between, is right again when its worker has slept once more. */
struct surus_rings {
	_Alignas(SURUS_RINGS_LINE) _Atomic uint32_t surus_sleeps; /* enum surus_sleep */
	_Atomic uint64_t looked; /* when surus has looked for letters last, in microseconds of CLOCK_MONOTONIC */
	/* Messages that surus has sent by the socket to nobody who sleeps, and how many of them have certainly been received. */
	_Alignas(SURUS_RINGS_LINE) _Atomic uint64_t by_socket;
	_Atomic uint64_t received;
};
_Static_assert(sizeof(struct surus_rings) == 128, "two cache lines");

/* What is between `head` and `tail`, which only grow, waits to be read, at their values modulo the ring's size. One side writes. In the
 * inbox, many read: each copies what is at the head, and has it if nobody else has moved the head meanwhile. */
struct surus_ring {
	_Alignas(SURUS_RINGS_LINE) _Atomic uint64_t head;
	_Alignas(SURUS_RINGS_LINE) _Atomic uint64_t tail;
};
_Static_assert(sizeof(struct surus_ring) == 128, "two cache lines");

/* Stands before each event in the inbox; what follows is filled up to a multiple of its size, so that it is never cut. */
struct surus_ring_event {
	uint32_t len;
	uint32_t at; /* the lower half of its position: elsewhere it is what was left by an event before */
};
_Static_assert(sizeof(struct surus_ring_event) == 8, "as in rings.rs");

/* Stands before each letter in an outbox: whole records, all that there is to say of one event, or its answer and then its end. */
struct surus_ring_letter {
	uint32_t len;
	uint32_t pid;    /* who writes; its place may be another's when it is read */
	uint64_t number; /* of the event, as `taken` in the scoreboard counts */
};
_Static_assert(sizeof(struct surus_ring_letter) == 16, "as in rings.rs");

/* In the template: maps them. False: said on stderr. */
bool surus_rings_open(int fd);
/* In a worker that begins. */
void surus_rings_begin(void);
/* Takes the next event of the inbox, of at most `room` bytes. 0: there is none. */
size_t surus_rings_take(unsigned char *to, size_t room);
/* Messages that have come by the socket so far, to nobody who sleeps; `maybe`: some of them may still be there. */
uint64_t surus_rings_by_socket(bool *maybe);
/* When the socket was found empty: so many have been received. */
void surus_rings_received(uint64_t count);
/* From here on this worker has to be woken for an event. Who is about to sleep looks for one once more after that. */
void surus_rings_sleep(void);
/* It is awake. False: surus has sent a message to wake it, or had. */
bool surus_rings_wake(void);
/* From here on this worker looks into the ring all the time. Surus takes its bit away for an event that it has put there. */
void surus_rings_spin(void);
/* No more. What it was counted upon for, others are woken for, if it is still there. */
void surus_rings_spun(void);
/* It has got a message that was to wake the worker of this place. If that is another, it still sleeps; surus is told where there is something for it. */
void surus_rings_was_to_wake(uint32_t place);
/* Puts the letter about the event in our hands into the outbox. False: there is no room. */
bool surus_rings_post(const unsigned char *letter, size_t len);
/* After that: is surus to be woken for it? Who is told so rings. */
bool surus_rings_is_surus_to_wake(void);
/* Rings the bell. */
void surus_rings_ring(void);

#endif
