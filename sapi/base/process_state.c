/* State of this process that several modules share and a rewind does not restore: identity, state,
 * counters. */
#include "base/process_state.h"

#include <stdio.h>
#include <unistd.h>

#include "base/exit_status.h"
#include "base/persistent_map.h"

struct surus_process *surus_process;

bool surus_process_create(void)
{
	surus_process = surus_persistent_alloc(sizeof(*surus_process));
	if (!surus_process) {
		return false;
	}
	surus_process->line = &surus_process->nowhere;
	return true;
}

void surus_process_redirect_stdio(void)
{
	dup2(surus_process->log, STDOUT_FILENO);
	dup2(surus_process->log, STDERR_FILENO);
	close(surus_process->log);
}

_Noreturn void surus_process_abort_setup(const char *why)
{
	dprintf(STDERR_FILENO, "surus-php: cannot set up a worker: %s\n", why);
	_exit(SURUS_EXIT_SETUP_FAILED);
}

