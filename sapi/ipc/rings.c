/* Request ring, response rings and doorbells: takes requests, writes responses, waits. */
#include "ipc/rings.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/exit_status.h"
#include "base/persistent_map.h"
#include "base/process_state.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"

static struct surus_rings *rings;
static _Atomic uint32_t *doorbells; /* enum surus_doorbell of each worker */
static _Atomic uint64_t *written; /* a bit for each worker */
static struct surus_ring *inbox, *outboxes;
static unsigned char *inbox_bytes, *outbox_bytes;
static size_t inbox_size;
/* Whether the response ring contains only this process's frames. In persistent memory. */
static bool *is_claimed;

static size_t padded(size_t len, size_t unit)
{
	return (len + unit - 1) / unit * unit;
}

bool surus_rings_open(int fd)
{
	size_t workers = surus_settings.workers;
	size_t doorbells_size = padded(workers * sizeof(*doorbells), SURUS_RINGS_LINE);
	size_t bits = padded((workers + 7) / 8, SURUS_RINGS_LINE);
	struct stat file;

	for (inbox_size = SURUS_INBOX_RING_LEAST;
	        inbox_size < workers * SURUS_INBOX_RING_EACH && inbox_size < SURUS_INBOX_RING_MOST;) {
		inbox_size *= 2;
	}
	size_t size = sizeof(*rings) + doorbells_size + bits + (1 + workers) * sizeof(*inbox) +
	        inbox_size + workers * SURUS_OUTBOX_RING;
	if (fstat(fd, &file) != 0 || (size_t)file.st_size != size) {
		fprintf(stderr,
		        "surus-php: the rings are not %zu bytes long (surus and surus-php have different "
		        "versions)\n", size);
		return false;
	}
	unsigned char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED) {
		fprintf(stderr, "surus-php: cannot map the rings: %m\n");
		return false;
	}
	is_claimed = surus_persistent_alloc(sizeof(*is_claimed));
	if (!is_claimed) {
		fprintf(stderr, "surus-php: cannot allocate the shared rings: %m\n");
		return false;
	}
	rings = (struct surus_rings *)at;
	at += sizeof(*rings);
	doorbells = (_Atomic uint32_t *)at;
	at += doorbells_size;
	written = (_Atomic uint64_t *)at;
	at += bits;
	inbox = (struct surus_ring *)at;
	outboxes = inbox + 1;
	inbox_bytes = (unsigned char *)(outboxes + workers);
	outbox_bytes = inbox_bytes + inbox_size;
	return true;
}

void surus_rings_begin(void)
{
	/* The previous worker with this index may have exited at any point. */
	surus_rings_set_doorbell(SURUS_WORKING);
	*is_claimed = false;
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
	struct surus_ring_request request;
	uint64_t head = atomic_load(&inbox->head), next;

	do {
		uint64_t tail = atomic_load(&inbox->tail), there = tail - head;
		if (there == 0) {
			return 0;
		}
		/* Until the head has been moved, another worker may take this entry and Surus may overwrite
		 * it, so the copy may contain anything. The same holds if a worker has overwritten
		 * positions or bytes. So every value is checked. Surus resends requests that are skipped,
		 * because nothing has claimed them (scoreboard_layout.h). */
		copy_out(inbox_bytes, inbox_size, head, &request, sizeof(request));
		bool is_one = head % sizeof(request) == 0 && there <= inbox_size &&
		        request.at == (uint32_t)head && request.len > 0 && request.len <= room &&
		              there > sizeof(request) && request.len <= there - sizeof(request);
		if (is_one) {
			copy_out(inbox_bytes, inbox_size, head + sizeof(request), to, request.len);
			next = head + sizeof(request) + padded(request.len, sizeof(request));
		} else {
			request.len = 0;
			next = tail;
		}
	} while (!atomic_compare_exchange_weak(&inbox->head, &head, next));
	if (request.len == 0) {
		fprintf(stderr,
		        "surus-php: the request ring is damaged: a script has written to memory that is "
		        "not its own; what was in the ring is sent again\n");
	}
	return request.len;
}

bool surus_rings_has_entry(void)
{
	return atomic_load(&inbox->head) != atomic_load(&inbox->tail);
}

void surus_rings_set_doorbell(enum surus_doorbell state)
{
	atomic_store(&doorbells[surus_process->index], state);
}

bool surus_rings_wait(void)
{
	/* EAGAIN: the doorbell has changed. */
	return syscall(SYS_futex, &doorbells[surus_process->index], FUTEX_WAIT, SURUS_BLOCKED, NULL,
	               NULL, 0) == 0 || errno == EAGAIN;
}

uint32_t surus_rings_poll_budget(void)
{
	enum { MOST = 1000 }; /* a script can write any number there */
	uint32_t budget = atomic_load(&rings->poll_budget);

	return budget < MOST ? budget : MOST;
}

void surus_rings_wake_surus(void)
{
	const uint64_t one = 1;

	/* EAGAIN: the counter is full, so Surus will be woken anyway. */
	if (write(SURUS_FD_DOORBELL, &one, sizeof(one)) < 0 && errno != EAGAIN) {
		_exit(SURUS_EXIT_DRAINED);
	}
}

bool surus_rings_must_notify(void)
{
	/* microseconds; then all of Surus's threads are busy and must be notified */
	enum { LONG = 200 };
	uint32_t need = atomic_load(&rings->need_wakeup);
	uint64_t polled_at = atomic_load(&rings->polled_at);

	return need == SURUS_WAKEUP_ALWAYS || (need == SURUS_WAKEUP_NEEDED &&
	        atomic_compare_exchange_strong(&rings->need_wakeup, &need, SURUS_WAKEUP_SUPPRESSED)) ||
	       surus_clock_now() - polled_at > LONG;
}

bool surus_rings_write_response(const unsigned char *content, size_t len)
{
	struct surus_ring *outbox = &outboxes[surus_process->index];
	unsigned char *bytes = outbox_bytes + (size_t)surus_process->index * SURUS_OUTBOX_RING;
	struct surus_ring_frame frame = {.len = (uint32_t)len, .pid = (uint32_t)surus_process->pid,
	        .number = surus_process->taken};
	size_t size = sizeof(frame) + padded(len, sizeof(frame));

	uint64_t head = atomic_load(&outbox->head), tail = atomic_load(&outbox->tail);
	/* Unread frames may belong to the previous worker with this index; they are read before this
	 * worker's frames. */
	if (!*is_claimed && head != tail) {
		return false;
	}
	*is_claimed = true;
	if (tail - head > SURUS_OUTBOX_RING || size > SURUS_OUTBOX_RING - (tail - head)) {
		return false;
	}
	copy_in(bytes, SURUS_OUTBOX_RING, tail, &frame, sizeof(frame));
	copy_in(bytes, SURUS_OUTBOX_RING, tail + sizeof(frame), content, len);
	atomic_store(&outbox->tail, tail + size);
	atomic_fetch_or(&written[surus_process->index / 64], (uint64_t)1 << surus_process->index % 64);
	return true;
}
