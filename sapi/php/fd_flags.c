/* Restores the status flags (such as O_NONBLOCK) of descriptors that a worker or its boot has open,
 * because the kernel keeps them and a request may change them. */
#include "php/fd_flags.h"

#include <fcntl.h>
#include <unistd.h>

#include <php.h>

#include "base/procfs.h"
#include "base/scoreboard_layout.h"

static struct {
	int fd, flags;
} saved[SURUS_DESCRIPTORS * 8 + STDERR_FILENO + 1];

static size_t count;
static bool may_have_changed;

/* Functions that change status flags, or start programs, which share descriptors. Their arguments
 * are not checked: a stream of the request may refer to a descriptor of the boot or of the
 * process. */
static const char *const names[] = {"stream_set_blocking", "socket_set_blocking",
        "socket_set_nonblock", "socket_set_block",
                                    "exec", "passthru", "popen", "proc_open", "shell_exec",
                                    "system"};

enum { FUNCTIONS = sizeof(names) / sizeof(*names) };

static struct {
	const zend_string *name; /* closures have a copy of the function with the same name */
	zif_handler handler;
} plain[FUNCTIONS];

static ZEND_FUNCTION(surus_change_flags)
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
			function->internal_function.handler = ZEND_FN(surus_change_flags);
		}
	}
}

void surus_flags_save(int fd)
{
	saved[count].fd = fd;
	saved[count++].flags = fcntl(fd, F_GETFL);
}

void surus_flags_restore(void)
{
	if (!may_have_changed) {
		return;
	}
	for (size_t i = 0; i < count; i++) {
		if (fcntl(saved[i].fd, F_GETFL) != saved[i].flags) {
			fcntl(saved[i].fd, F_SETFL, saved[i].flags);
		}
	}
	may_have_changed = false;
}
