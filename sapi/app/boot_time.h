/* Names constants and statics in which the boot keeps the time of its start: it stands for
 * REQUEST_TIME, */
#ifndef SURUS_APP_BOOT_TIME_H
#define SURUS_APP_BOOT_TIME_H

#include <stdbool.h>

/* In the template, before anything is forked. */
bool surus_boot_time_start(void);
/* When the request of the boot has started. */
void surus_boot_time_begin(void);
/* At the end of the boot, once for all workers: says on stderr what keeps the time. */
void surus_boot_time_look(void);

#endif
