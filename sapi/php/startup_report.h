#ifndef SURUS_REPORT_H
#define SURUS_REPORT_H

#include <stddef.h>

/* Writes what the template tells surus when PHP has started: "ready", then lines `name=value`.
 * Returns the length. */
size_t surus_report(char *text, size_t size);

#endif
