/* Counts the files that a request includes: work that the boot has not done ahead. */
#ifndef SURUS_APP_REQUEST_INCLUDES_H
#define SURUS_APP_REQUEST_INCLUDES_H

#include <stdint.h>

void surus_request_includes_begin(void);
/* Each file counts once, and those of the boot do not. Before PHP's request shutdown, which forgets
 * them. */
uint32_t surus_request_includes_count(void);

#endif
