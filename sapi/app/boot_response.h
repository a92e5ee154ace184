/* Finds headers, sessions and output buffers of the boot, which no response has. */
#ifndef SURUS_APP_BOOT_RESPONSE_H
#define SURUS_APP_BOOT_RESPONSE_H

#include <stdbool.h>

/* When the boot's PHP request has started. */
void surus_boot_response_begin(void);
/* At the end of the boot, before PHP drops its response. A framework's boot script must not serve
 * an application whose responses would lack something: false, with the reason on stderr. WordPress
 * and a script of the user's own may serve. `reports` says whether this process names the cause. */
bool surus_boot_response_check(bool reports);

#endif
