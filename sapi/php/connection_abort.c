/* Ends a script whose client has closed the connection: at its next write, unless it has called
 * ignore_user_abort(). */
#include "php/connection_abort.h"

#include <php.h>
#include <php_main.h>
#include <php_output.h>
#include <zend_exceptions.h>

#include "base/clock.h"
#include "base/process_state.h"
#include "base/settings.h"
#include "ipc/request_status.h"

/* How long a PHP function may continue to write, in microseconds: fpassthru() of a connection may
 * never end. */
enum { GRACE = 1000000 };

static uint64_t ended_at; /* when the script was told to end; 0: it was not */

void surus_abort_begin(void)
{
	ended_at = 0;
}

/* PHP aborts by longjmp, as after a fatal error, and leaves everything unfinished; that is safe if
 * the process's memory is restored or freed. In a process that continues, the script ends as by
 * exit(), so that each function on the stack returns. */
void surus_abort(void)
{
	/* At the deadline the client may still be there, and the end is a fatal error anyway. */
	if (surus_settings.engine != SURUS_WORKER || surus_request_status_has_stop()) {
		php_handle_aborted_connection();
		return;
	}
	PG(connection_status) = PHP_CONNECTION_ABORTED;
	if (ended_at) {
		/* Shutdown functions and destructors run to their end, without output. */
		if (EG(exception) && zend_is_unwind_exit(EG(exception)) &&
		        surus_clock_now() - ended_at > GRACE) {
			php_handle_aborted_connection();
		}
		return;
	}
	if (PG(ignore_user_abort) || !surus_process->runs_script || !EG(current_execute_data)) {
		php_output_set_status(PHP_OUTPUT_DISABLED);
		return;
	}
	/* A pending exception ends the script, too; if it is caught, the next write does. */
	if (!EG(exception)) {
		ended_at = surus_clock_now();
		zend_throw_unwind_exit();
	}
}
