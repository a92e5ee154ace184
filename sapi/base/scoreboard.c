/* Maps the scoreboard, and writes this worker's state into its line. */
#include "base/scoreboard.h"

#include <sys/mman.h>

#include "base/clock.h"
#include "base/process_state.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"

struct surus_line *surus_lines;
_Atomic uint64_t *surus_tickets;

bool surus_scoreboard_open(int fd)
{
	size_t size = SURUS_SCOREBOARD_SIZE(surus_settings.workers, surus_settings.slots);

	surus_lines = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (surus_lines == MAP_FAILED) {
		return false;
	}
	surus_tickets = (_Atomic uint64_t *)(surus_lines + surus_settings.workers);
	return true;
}

void surus_scoreboard_set_state(enum surus_state state)
{
	if (surus_process->has_no_client) {
		return; /* a warm-up is part of the boot */
	}
	surus_process->state = state;
	surus_process->since = surus_clock_now();
	atomic_store_explicit(&surus_process->line->since, surus_process->since, memory_order_relaxed);
	atomic_store_explicit(&surus_process->line->state, state, memory_order_release);
}
