/* Events and answers that pass through shared memory. */
#include "ipc/rings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/exit_status.h"
#include "base/process_state.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"

static struct surus_rings *rings;
static _Atomic uint64_t *sleeping, *spinning, *posted; /* a bit for each worker */
static struct surus_ring *inbox, *outboxes;
static unsigned char *inbox_bytes, *outbox_bytes;
static size_t inbox_size;

bool surus_rings_open(int fd)
{
	size_t workers = surus_settings.workers;
	size_t words = (workers + SURUS_RINGS_LINE * 8 - 1) / (SURUS_RINGS_LINE * 8) * SURUS_RINGS_LINE;
	struct stat file;

	for (inbox_size = SURUS_INBOX_RING_LEAST;
	        inbox_size < workers * SURUS_INBOX_RING_EACH && inbox_size < SURUS_INBOX_RING_MOST;) {
		inbox_size *= 2;
	}
	size_t size = sizeof(*rings) + 3 * words + (1 + workers) * sizeof(*inbox) + inbox_size +
	        workers * SURUS_OUTBOX_RING;
	if (fstat(fd, &file) != 0 || (size_t)file.st_size != size) {
		fprintf(stderr,
		        "surus-php: the rings have another size than %zu bytes; this surus-php is not that "
		        "of surus\n", size);
		return false;
	}
	unsigned char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED) {
		fprintf(stderr, "surus-php: cannot map the rings: %m\n");
		return false;
	}
	rings = (struct surus_rings *)at;
	at += sizeof(*rings);
	sleeping = (_Atomic uint64_t *)at;
	at += words;
	spinning = (_Atomic uint64_t *)at;
	at += words;
	posted = (_Atomic uint64_t *)at;
	at += words;
	inbox = (struct surus_ring *)at;
	outboxes = inbox + 1;
	inbox_bytes = (unsigned char *)(outboxes + workers);
	outbox_bytes = inbox_bytes + inbox_size;
	return true;
}

static uint64_t our_bit(void)
{
	return (uint64_t)1 << surus_self->place % 64;
}

static void set(_Atomic uint64_t *bits)
{
	atomic_fetch_or(&bits[surus_self->place / 64], our_bit());
}

/* Was it set? */
static bool clear(_Atomic uint64_t *bits)
{
	_Atomic uint64_t *word = &bits[surus_self->place / 64];

	return atomic_load(word) & our_bit() && atomic_fetch_and(word, ~our_bit()) & our_bit();
}

void surus_rings_begin(void)
{
	/* Who has had this place before may have ended anywhere. */
	clear(sleeping);
	clear(spinning);
	surus_self->letters_are_ours = false;
}

static size_t padded(size_t len, size_t unit)
{
	return (len + unit - 1) / unit * unit;
}

static void copy_out(const unsigned char *bytes, size_t size, uint64_t from, void *to, size_t len)
{
	size_t at = from % size, first = len < size - at ? len : size - at;

	memcpy(to, bytes + at, first);
	memcpy((unsigned char *)to + first, bytes, len - first);
}

static void copy_in(unsigned char *bytes, size_t size, uint64_t to, const void *from, size_t len)
{
	size_t at = to % size, first = len < size - at ? len : size - at;

	memcpy(bytes + at, from, first);
	memcpy(bytes, (const unsigned char *)from + first, len - first);
}

size_t surus_rings_take(unsigned char *to, size_t room)
{
	struct surus_ring_event event;
	uint64_t head = atomic_load(&inbox->head), next;

	do {
		uint64_t tail = atomic_load(&inbox->tail), there = tail - head;
		if (there == 0) {
			return 0;
		}
		/* Until the head is ours, another may take this one, and surus write over it: then it is
		 * anything. So it is, too, where a worker has written to positions or bytes: all that
		 * follows from them is checked, and what they may have had us skip, surus sends once more,
		 * since nobody has claimed it (scoreboard.h). */
		copy_out(inbox_bytes, inbox_size, head, &event, sizeof(event));
		bool is_one = head % sizeof(event) == 0 && there <= inbox_size &&
		        event.at == (uint32_t)head && event.len > 0 && event.len <= room &&
		              there > sizeof(event) && event.len <= there - sizeof(event);
		if (is_one) {
			copy_out(inbox_bytes, inbox_size, head + sizeof(event), to, event.len);
			next = head + sizeof(event) + padded(event.len, sizeof(event));
		} else {
			event.len = 0;
			next = tail;
		}
	} while (!atomic_compare_exchange_weak(&inbox->head, &head, next));
	if (event.len == 0) {
		fprintf(stderr,
		        "surus-php: the request ring is damaged: a script has written to memory that is "
		        "not its own; what was in the ring is sent again\n");
	}
	return event.len;
}

uint64_t surus_rings_by_socket(bool *maybe)
{
	uint64_t count = atomic_load(&rings->by_socket);

	*maybe = atomic_load(&rings->received) < count;
	return count;
}

void surus_rings_received(uint64_t count)
{
	uint64_t known = atomic_load(&rings->received);

	while (known < count && !atomic_compare_exchange_weak(&rings->received, &known, count)) {
	}
}

void surus_rings_sleep(void)
{
	set(sleeping);
}

bool surus_rings_wake(void)
{
	return clear(sleeping);
}

static bool has_event(void)
{
	return atomic_load(&inbox->head) != atomic_load(&inbox->tail);
}

void surus_rings_spin(void)
{
	set(spinning);
}

void surus_rings_spun(void)
{
	if (!clear(spinning) && has_event()) {
		surus_rings_ring();
	}
}

void surus_rings_was_to_wake(uint32_t place)
{
	if (place != surus_self->place && place < surus_settings.workers) {
		atomic_fetch_or(&sleeping[place / 64], (uint64_t)1 << place % 64);
		/* What has come since its bit was taken away has woken nobody. */
		if (has_event()) {
			surus_rings_ring();
		}
	}
}

void surus_rings_ring(void)
{
	const uint64_t one = 1;

	/* A bell that cannot be rung any more has been rung often enough. */
	if (write(SURUS_FD_BELL, &one, sizeof(one)) < 0 && errno != EAGAIN) {
		_exit(SURUS_EXIT_INBOX_CLOSED);
	}
}

bool surus_rings_is_surus_to_wake(void)
{
	/* us: then its threads have so much to do that they do not sleep, and have to be told */
	enum { LONG = 200 };
	uint32_t sleeps = atomic_load(&rings->surus_sleeps);
	uint64_t looked = atomic_load(&rings->looked);

	return sleeps == SURUS_UNKNOWN || (sleeps == SURUS_ASLEEP &&
	        atomic_compare_exchange_strong(&rings->surus_sleeps, &sleeps, SURUS_AWAKE)) ||
	       surus_now() - looked > LONG;
}

bool surus_rings_post(const unsigned char *content, size_t len)
{
	struct surus_ring *outbox = &outboxes[surus_self->place];
	unsigned char *bytes = outbox_bytes + (size_t)surus_self->place * SURUS_OUTBOX_RING;
	struct surus_ring_letter letter = {.len = (uint32_t)len, .pid = (uint32_t)surus_self->pid,
	        .number = surus_self->taken};
	size_t size = sizeof(letter) + padded(len, sizeof(letter));

	uint64_t head = atomic_load(&outbox->head), tail = atomic_load(&outbox->tail);
	/* What is there may be from who has had our place before, whose last letters are read beside
	 * ours. */
	if (!surus_self->letters_are_ours && head != tail) {
		return false;
	}
	surus_self->letters_are_ours = true;
	if (tail - head > SURUS_OUTBOX_RING || size > SURUS_OUTBOX_RING - (tail - head)) {
		return false;
	}
	copy_in(bytes, SURUS_OUTBOX_RING, tail, &letter, sizeof(letter));
	copy_in(bytes, SURUS_OUTBOX_RING, tail + sizeof(letter), content, len);
	atomic_store(&outbox->tail, tail + size);
	set(posted);
	return true;
}
