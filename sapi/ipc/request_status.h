/* Tells whether the client of the request in hand has gone, or Surus has asked to stop it. */
#ifndef SURUS_IPC_REQUEST_STATUS_H
#define SURUS_IPC_REQUEST_STATUS_H

#include <stdbool.h>

/* Has the client of the event in our hands gone? */
bool surus_client_gone(void);
/* Asked to end the event in our hands? */
bool surus_stop_requested(void);
/* Writes into our line again what we are doing. May be called by a signal handler. */
void surus_say_again(void);

#endif
