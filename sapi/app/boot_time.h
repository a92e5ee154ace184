/* Finds constants, globals and static variables in which the boot keeps a time of its own, or a
 * warm-up its REQUEST_TIME. */
#ifndef SURUS_APP_BOOT_TIME_H
#define SURUS_APP_BOOT_TIME_H

#include <stdbool.h>

struct _zval_struct;

/* In the master process, before the first fork. */
bool surus_boot_time_start(void);
/* When the boot's PHP request has started. */
void surus_boot_time_begin(void);
/* At the end of the boot, once for all workers: reports on stderr what keeps the time. False: a
 * worker has reported before. */
bool surus_boot_time_report(void);
/* A variable that keeps this REQUEST_TIME_FLOAT, or its second: "the constant NOW". Looks into the
 * handler, too. NULL: none. */
const char *surus_boot_time_find(double time, const struct _zval_struct *handler);

#endif
