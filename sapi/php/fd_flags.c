/* Status flags (O_NONBLOCK, for one) of what a worker and its boot have open: they are the
 * kernel's, and put back where an event may have changed them. */
#include "php/fd_flags.h"

#include <fcntl.h>
#include <unistd.h>

#include <php.h>

#include "base/procfs.h"
#include "base/scoreboard_layout.h"

static struct {
	int fd, flags;
} noted[SURUS_DESCRIPTORS * 8 + STDERR_FILENO + 1];

static size_t count;
static bool may_have_changed;

/* Those by which PHP changes them, and those that start programs, which have some of them open too.
 * Whose stream or socket is given is not asked: one that an event has made may lead to what the
 * boot, or this process, has open. */
static const char *const names[] = {"stream_set_blocking", "socket_set_blocking",
        "socket_set_nonblock", "socket_set_block",
                                    "exec", "passthru", "popen", "proc_open", "shell_exec",
                                    "system"};

enum { FUNCTIONS = sizeof(names) / sizeof(*names) };

static struct {
	const zend_string *name; /* closures have a copy of the function with the same name */
	zif_handler handler;
} plain[FUNCTIONS];

static ZEND_FUNCTION(surus_changing_flags)
{
	may_have_changed = true;
	for (size_t i = 0; i < FUNCTIONS; i++) {
		if (plain[i].name == EX(func)->common.function_name) {
			plain[i].handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
			return;
		}
	}
}

void surus_flags_watch(void)
{
	for (size_t i = 0; i < FUNCTIONS; i++) {
		zend_function *function = zend_hash_str_find_ptr(CG(function_table), names[i],
		        strlen(names[i]));
		if (function && function->type == ZEND_INTERNAL_FUNCTION) {
			plain[i].name = function->common.function_name;
			plain[i].handler = function->internal_function.handler;
			function->internal_function.handler = ZEND_FN(surus_changing_flags);
		}
	}
}

void surus_flags_note(int fd)
{
	noted[count].fd = fd;
	noted[count++].flags = fcntl(fd, F_GETFL);
}

void surus_flags_put_back(void)
{
	if (!may_have_changed) {
		return;
	}
	for (size_t i = 0; i < count; i++) {
		if (fcntl(noted[i].fd, F_GETFL) != noted[i].flags) {
			fcntl(noted[i].fd, F_SETFL, noted[i].flags);
		}
	}
	may_have_changed = false;
}
