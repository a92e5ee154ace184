/* PHP's own streams of files and pipes, by their descriptors. */
#ifndef SURUS_PHP_STREAMS_H
#define SURUS_PHP_STREAMS_H

struct _php_stream;

/* PHP's own stream of a file or pipe; NULL where a library has opened it. */
struct _php_stream *surus_stream_of(int fd);

#endif
