/* What becomes of a script whose client has gone: it ends at its next write, unless it has asked to
 * go on (ignore_user_abort). */
#include "php/connection_abort.h"

#include <php.h>
#include <php_main.h>
#include <php_output.h>
#include <zend_exceptions.h>

#include "base/clock.h"
#include "base/process_state.h"
#include "base/settings.h"
#include "ipc/request_status.h"

/* How long a function of PHP's own may go on writing before it is cut off: fpassthru() of a
 * connection may never end. In microseconds. */
enum { GRACE = 1000000 };

static uint64_t ended_at; /* when the script was told to end; 0: it was not */

void surus_abort_begin(void)
{
	ended_at = 0;
}

/* PHP leaves its functions by longjmp, as after a fatal error, and nothing that they have begun is
 * finished: good for a process whose memory goes. Where the process goes on as it is, the script
 * ends as by exit(): every function on the way ends in order. */
void surus_abort(void)
{
	/* At its deadline the client may still be there, and the end is a fatal error anyway. */
	if (surus_settings.engine != SURUS_WORKER || surus_stop_requested()) {
		php_handle_aborted_connection();
		return;
	}
	PG(connection_status) = PHP_CONNECTION_ABORTED;
	if (ended_at) {
		/* What runs for the end, runs whole, and nobody hears it. */
		if (EG(exception) && zend_is_unwind_exit(EG(exception)) && surus_now() - ended_at > GRACE) {
			php_handle_aborted_connection();
		}
		return;
	}
	if (PG(ignore_user_abort) || !surus_self->runs_script || !EG(current_execute_data)) {
		php_output_set_status(PHP_OUTPUT_DISABLED);
		return;
	}
	/* One that is on its way ends the script too; if it is caught, the next write does. */
	if (!EG(exception)) {
		ended_at = surus_now();
		zend_throw_unwind_exit();
	}
}
