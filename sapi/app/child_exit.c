/* Ends a process that a script has forked, when its script has ended. */
#include "app/child_exit.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <php.h>
#include <php_main.h>

#include "app/boot_shutdown.h"
#include "app/request_shutdown.h"
#include "base/process_state.h"
#include "base/settings.h"

_Noreturn void surus_child_end(void)
{
	if (surus_self->child == SURUS_CHILD_OF_WORKER && surus_boots_in_template()) {
		/* The boot's objects have nothing to end here: they live on in the workers. */
		surus_isolated_end();
	} else {
		surus_serve_before_shutdown();
		php_request_shutdown(NULL);
	}
	_exit(EG(exit_status)); /* without what libraries have registered for the end of the worker */
}
