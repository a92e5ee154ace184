/* The PHP functions by which a booted script serves requests: surus_serve(), surus_checkpoint(),
 * frankenphp_handle_request(). */
#ifndef SURUS_APP_SERVE_H
#define SURUS_APP_SERVE_H

#include <stdbool.h>

/* Registers the functions. */
bool surus_serve_register(int type);
/* Whether the script has called one of them. */
bool surus_serve_called(void);
/* Called when the script has ended, `normally` unless by exit() or an error. If the rest of the
 * script has served a request, ends that request; then it may not return. */
void surus_serve_script_ended(bool normally);

#endif
