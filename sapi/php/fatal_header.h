/* The header that tells Surus of a fatal error which the response shows. */
#ifndef SURUS_PHP_FATAL_HEADER_H
#define SURUS_PHP_FATAL_HEADER_H

#include <stddef.h>

/* Returns the header's line, without its end, until the next call. NULL: PHP shows no fatal
 * error. */
const char *surus_fatal_header(size_t *len);

#endif
