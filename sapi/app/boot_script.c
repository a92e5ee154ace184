/* Keeps the file handle of the script that boots, and closes it before the script has ended. */
#include "app/boot_script.h"

#include <php.h>
#include <zend_stream.h>

zend_file_handle surus_boot_script;

void surus_boot_script_close(void)
{
	zend_stream *stream = &surus_boot_script.handle.stream;
	zend_llist_position at;

	if (surus_boot_script.type != ZEND_HANDLE_STREAM || !stream->closer || !stream->handle) {
		return;
	}
	for (zend_file_handle *file = zend_llist_get_first_ex(&CG(open_files), &at); file;
	        file = zend_llist_get_next_ex(&CG(open_files), &at)) {
		if (file->type == ZEND_HANDLE_STREAM && file->handle.stream.handle == stream->handle) {
			file->handle.stream.handle = NULL;
		}
	}
	stream->closer(stream->handle);
	stream->handle = NULL;
}
