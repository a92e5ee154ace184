/* Reports constants, globals and static variables in which the boot keeps its REQUEST_TIME. */
#ifndef SURUS_APP_BOOT_TIME_H
#define SURUS_APP_BOOT_TIME_H

#include <stdbool.h>

/* In the master process, before the first fork. */
bool surus_boot_time_start(void);
/* When the boot's PHP request has started. */
void surus_boot_time_begin(void);
/* At the end of the boot, once for all workers: reports on stderr what keeps the time. */
void surus_boot_time_report(void);

#endif
