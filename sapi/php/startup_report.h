/* Writes the report on PHP's start. */
#ifndef SURUS_PHP_STARTUP_REPORT_H
#define SURUS_PHP_STARTUP_REPORT_H

#include <stddef.h>

/* Writes the report for Surus when PHP has started: "ready", then lines `name=value`. Returns the
 * length. */
size_t surus_startup_report(char *text, size_t size);

#endif
