/* Keeps the shutdown functions that the boot has registered apart from those of requests. */
#include "app/boot_shutdown.h"

#include <php.h>
#include <ext/standard/basic_functions.h>

/* Those that the boot has registered, while warm-ups run, and on `worker` always: there they run
 * when the script ends, and not for each request. */
static HashTable *of_boot;

void surus_boot_shutdown_take(void)
{
	of_boot = BG(user_shutdown_function_names);
	BG(user_shutdown_function_names) = NULL;
}

void surus_boot_shutdown_put(void)
{
	BG(user_shutdown_function_names) = of_boot;
	of_boot = NULL;
}

void surus_serve_before_shutdown(void)
{
	HashTable *boot = of_boot;

	if (!boot) {
		return;
	}
	of_boot = NULL;
	if (BG(user_shutdown_function_names)) {
		/* A fatal error ends the event and the script: first what the boot has registered, as in a
		 * request of its own. */
		HashTable *of_the_event = BG(user_shutdown_function_names);
		BG(user_shutdown_function_names) = boot;
		php_call_shutdown_functions();
		php_free_shutdown_functions();
		BG(user_shutdown_function_names) = of_the_event;
	} else {
		BG(user_shutdown_function_names) = boot;
	}
}
