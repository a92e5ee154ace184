/* Finds PHP's stream of a descriptor. */
#include "php/streams.h"

#include <php.h>

php_stream *surus_streams_find(int fd)
{
	zend_resource *resource;

	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource) {
		php_stream *stream = resource->ptr;
		int own = -1;

		/* Other streams might create a descriptor if asked for one. */
		if (stream && (resource->type == php_file_le_stream() ||
		        resource->type == php_file_le_pstream()) &&
		    stream->ops == &php_stream_stdio_ops &&
		    stream->ops->cast(stream, PHP_STREAM_AS_FD, (void **)&own) == SUCCESS &&
		    own == fd) {
			return stream;
		}
	} ZEND_HASH_FOREACH_END();
	return NULL;
}
