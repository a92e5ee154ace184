/* Finds PHP's stream of a descriptor. */
#ifndef SURUS_PHP_STREAMS_H
#define SURUS_PHP_STREAMS_H

struct _php_stream;

/* PHP's stream of a file or pipe; NULL if a library has opened it. */
struct _php_stream *surus_streams_find(int fd);

#endif
