/* What an event has made, and the boot has not: ended as PHP ends a request, while what the boot
 * has made stays alive for the */
#ifndef SURUS_APP_REQUEST_SHUTDOWN_H
#define SURUS_APP_REQUEST_SHUTDOWN_H

/* Notes what there is now, at the end of the boot. */
void surus_ours_note(void);
/* Ends the event in our hands as PHP ends a request, for what the request has made: what the boot
 * has made stays alive. */
void surus_isolated_end(void);

#endif
