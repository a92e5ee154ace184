/* How a booted script comes to its events: surus_serve(), surus_checkpoint(),
 * frankenphp_handle_request(). */
#ifndef SURUS_APP_SERVE_H
#define SURUS_APP_SERVE_H

#include <stdbool.h>

/* Registers the functions for that. */
bool surus_serve_register(int type);
/* Has the script called one of them? */
bool surus_serve_called(void);
/* To be called when the script has ended, `normally` unless by exit() or an error. Where its rest
 * has served an event, ends that, and may not return. */
void surus_serve_script_ended(bool normally);

#endif
