/* Exits a process that a script has forked, at the end of its script. */
#include "app/child_exit.h"

#include <unistd.h>

#include <php.h>
#include <php_main.h>

#include "app/boot_shutdown.h"
#include "app/request_shutdown.h"
#include "base/process_state.h"
#include "base/settings.h"

_Noreturn void surus_child_exit(void)
{
	if (surus_process->child == SURUS_CHILD_OF_WORKER && surus_engine_boots_in_prototype()) {
		/* The boot's objects must not be destroyed here: they live on in the workers. */
		surus_request_shutdown();
	} else {
		surus_boot_shutdown_script_ended();
		php_request_shutdown(NULL);
	}
	_exit(EG(exit_status)); /* _exit(): the exit handlers of libraries belong to the worker */
}
