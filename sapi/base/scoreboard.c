/* Writes the state of this worker into its line of the scoreboard, and reads the lines of the
 * others. */
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
	size_t size = SURUS_SCOREBOARD_SIZE(surus_settings.workers, surus_settings.requests);

	surus_lines = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (surus_lines == MAP_FAILED) {
		return false;
	}
	surus_tickets = (_Atomic uint64_t *)(surus_lines + surus_settings.workers);
	return true;
}

void surus_set_state(enum surus_state state)
{
	if (surus_self->has_no_client) {
		return; /* a warm-up is part of the boot */
	}
	surus_self->state = state;
	surus_self->since = surus_now();
	atomic_store_explicit(&surus_self->line->since, surus_self->since, memory_order_relaxed);
	atomic_store_explicit(&surus_self->line->state, state, memory_order_release);
}

bool surus_template_others_work(void)
{
	for (uint32_t i = 0; i < surus_settings.workers; i++) {
		uint32_t state = atomic_load_explicit(&surus_lines[i].state, memory_order_relaxed);
		if (&surus_lines[i] != surus_self->line && state != SURUS_IDLE && state != SURUS_STARTING &&
		        state != SURUS_RETIRED) {
			return true;
		}
	}
	return false;
}
