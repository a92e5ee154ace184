/* Separates the shutdown functions of the boot from those of requests. */
#include "app/boot_shutdown.h"

#include <php.h>
#include <ext/standard/basic_functions.h>

/* The boot's shutdown functions, during warm-ups; on `worker` always, because there they run at the
 * end of the script and not of each request. */
static HashTable *of_boot;

void surus_boot_shutdown_set_aside(void)
{
	of_boot = BG(user_shutdown_function_names);
	BG(user_shutdown_function_names) = NULL;
}

void surus_boot_shutdown_restore(void)
{
	BG(user_shutdown_function_names) = of_boot;
	of_boot = NULL;
}

void surus_boot_shutdown_script_ended(void)
{
	HashTable *boot = of_boot;

	if (!boot) {
		return;
	}
	of_boot = NULL;
	if (BG(user_shutdown_function_names)) {
		/* A fatal error ends the request and the script. The boot's functions run first, as in PHP,
		 * where the boot is part of the request. */
		HashTable *of_request = BG(user_shutdown_function_names);
		BG(user_shutdown_function_names) = boot;
		php_call_shutdown_functions();
		php_free_shutdown_functions();
		BG(user_shutdown_function_names) = of_request;
	} else {
		BG(user_shutdown_function_names) = boot;
	}
}
