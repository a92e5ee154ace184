/* Provides the body of a request as PHP's stream.
 *
 * PHP's own reader (sapi_read_standard_form_data) copies more than 16 KiB into a named file, which
 * remains if the process is killed. Here the stream is memory, or the unnamed file that the body
 * came in. */
#include "php/request_body.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <php.h>
#include <SAPI.h>
#include <php_content_types.h>

#include "ipc/request_decode.h"

/* In memory of the right size; PHP's stream has the same two layers. */
static php_stream *from_message(const char *bytes, size_t len)
{
	php_stream *body = php_stream_temp_create_ex(TEMP_STREAM_DEFAULT, len + 1, PG(upload_tmp_dir));

	if (body) {
		php_stream_write(body, bytes, len);
		php_stream_rewind(body);
	}
	return body;
}

static php_stream *from_file(int *fd)
{
	/* The offset is shared with a worker that has had the request before and crashed. */
	php_stream *body = lseek(*fd, 0, SEEK_SET) == 0 ? php_stream_fopen_from_fd(*fd, "rb", NULL)
	        : NULL;

	if (body) {
		*fd = -1; /* the stream closes it */
	}
	return body;
}

static void read_body(void)
{
	struct surus_request *request = surus_request;
	bool is_whole = request->id && request->body_read == 0 &&
	                SG(request_info).content_length >= 0 &&
	                (uint64_t)SG(request_info).content_length == request->body_len;
	php_stream *body = NULL;

	if (is_whole && (SG(post_max_size) <= 0 ||
	        SG(request_info).content_length <= SG(post_max_size))) {
		body = request->body_fd >= 0 ? from_file(&request->body_fd)
		        : from_message(request->body, request->body_len);
	}
	if (!body) {
		/* PHP's reader reports what is wrong. */
		sapi_read_standard_form_data();
		return;
	}
	SG(request_info).request_body = body;
	SG(read_post_bytes) = (int64_t)request->body_len;
	SG(post_read) = 1;
	request->body_read = request->body_len;
}

/* As php_default_post_reader(), for types without a reader. */
static void read_other(void)
{
	if (strcmp(SG(request_info).request_method, "POST") == 0 && !SG(request_info).post_entry) {
		read_body();
	}
}

void surus_body_install(void)
{
	sapi_post_entry *entry;

	ZEND_HASH_FOREACH_PTR(&SG(known_post_content_types), entry) {
		if (entry->post_reader == sapi_read_standard_form_data) {
			entry->post_reader = read_body;
		}
	} ZEND_HASH_FOREACH_END();
	if (sapi_module.default_post_reader == php_default_post_reader) {
		sapi_register_default_post_reader(read_other);
	}
}

/* Streams of php://input read from the body by a pointer and are newer than it. */
static void close_readers(zend_long first)
{
	HashTable *list = &EG(regular_list);

	/* Closing a stream may move the table, because filters may be the script's. */
	for (uint32_t i = list->nNumUsed; i-- > 0;) {
		zval *slot = ZEND_HASH_ELEMENT(list, i);
		if (Z_TYPE_P(slot) == IS_UNDEF) {
			continue;
		}
		zend_resource *resource = Z_PTR_P(slot);
		if (resource->handle < first) {
			break;
		}
		php_stream *stream = resource->ptr;
		if (stream && resource->type == php_file_le_stream() &&
		        strcmp(stream->ops->label, "Input") == 0) {
			zend_list_close(resource);
		}
	}
}

void surus_body_leave_rest(void)
{
	int fd = surus_request->body_fd;

	/* Otherwise PHP reads all of it at the end of the request (sapi_deactivate()), for which it
	 * would wait for the client. */
	if (fd >= 0 && lseek(fd, 0, SEEK_CUR) < 0 && errno == ESPIPE) {
		SG(post_read) = 1;
	}
}

void surus_body_close(void)
{
	php_stream *body = SG(request_info).request_body;

	surus_body_leave_rest();
	if (body) {
		SG(post_read) = 1; /* the rest will not be read */
		SG(request_info).request_body = NULL;
		close_readers(body->res->handle);
		php_stream_close(body);
	}
}
