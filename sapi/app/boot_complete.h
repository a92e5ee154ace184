/* Completes the boot: checks what it leaves open, takes the snapshot, starts to serve. */
#ifndef SURUS_APP_BOOT_COMPLETE_H
#define SURUS_APP_BOOT_COMPLETE_H

#include <stdbool.h>

/* Called when the script calls a function that serves. True: this process takes requests. False:
 * there will be none. */
bool surus_boot_complete(void);

/* Whether the boot is complete. */
bool surus_boot_is_complete(void);

#endif
