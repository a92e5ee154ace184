/* Provides the body of a request as PHP's stream.
 *
 * PHP's own readers (sapi_read_standard_form_data, php://input) copy more than 16 KiB into a named
 * file, which remains if the process is killed. Here the stream is memory or an unnamed file,
 * whatever the method: the file that the body came in, or a new one if PHP reads block by block. */
#include "php/request_body.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <php.h>
#include <SAPI.h>
#include <php_content_types.h>
#include <php_open_temporary_file.h>

#include "ipc/request_decode.h"

/* A stream in memory that grows to `len` bytes. PHP's stream has the same two layers. */
static php_stream *in_memory(uint64_t len)
{
	return php_stream_temp_create_ex(TEMP_STREAM_DEFAULT, len + 1, PG(upload_tmp_dir));
}

static php_stream *from_message(const char *bytes, size_t len)
{
	php_stream *body = in_memory(len);

	if (body) {
		php_stream_write(body, bytes, len);
		php_stream_rewind(body);
	}
	return body;
}

/* NULL for a pipe. */
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

/* A new file that ends with the process. -1: the directories for temporary files take none. */
static int open_unnamed(void)
{
	const char *uploads = PG(upload_tmp_dir);
	const char *directory = uploads && *uploads ? uploads : php_get_temporary_directory();
	int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0) {
		/* The file system needs a name, or the directory is missing and PHP has another one. */
		zend_string *name = NULL;
		fd = php_open_temporary_fd_ex(uploads, "php", &name, PHP_TMP_FILE_SILENT);
		if (name) {
			unlink(ZSTR_VAL(name));
			zend_string_release(name);
		}
	}
	return fd;
}

/* Makes the whole body PHP's stream. False if a part was read or is still arriving. */
static bool give_whole(void)
{
	struct surus_request *request = surus_request;
	php_stream *body = NULL;

	if (request->body_read == 0) {
		body = request->body_fd >= 0 ? from_file(&request->body_fd)
		        : from_message(request->body, request->body_len);
	}
	if (!body) {
		return false;
	}
	SG(request_info).request_body = body;
	SG(read_post_bytes) = (int64_t)request->body_len;
	SG(post_read) = 1;
	request->body_read = request->body_len;
	return true;
}

/* Gives PHP an empty stream, to which php://input appends what it reads. */
static void give_empty(void)
{
	php_stream *body = NULL;

	if (surus_request->body_fd < 0) {
		body = in_memory(surus_request->body_len);
	} else {
		int fd = open_unnamed();
		body = fd >= 0 ? php_stream_fopen_from_fd(fd, "r+b", NULL) : NULL;
		if (fd >= 0 && !body) {
			close(fd);
		}
	}
	SG(request_info).request_body = body;
}

static bool is_too_large(void)
{
	zend_long max = SG(post_max_size);

#if PHP_VERSION_ID >= 80400
	/* an option of request_parse_body() */
	max = REQUEST_PARSE_BODY_OPTION_GET(post_max_size, max);
#endif
	return max > 0 && SG(request_info).content_length > max;
}

/* As the loop of sapi_read_standard_form_data(). */
static void append_rest(php_stream *body)
{
	char buffer[SAPI_POST_BLOCK_SIZE];

	if (SG(post_read)) {
		return;
	}
	php_stream_seek(body, 0, SEEK_END);
	while (!SG(post_read)) {
		size_t got = sapi_read_post_block(buffer, sizeof(buffer));
		if (php_stream_write(body, buffer, got) != (ssize_t)got) {
			php_stream_truncate_set_size(body, 0);
			php_error_docref(NULL, E_WARNING, "POST data can't be buffered; all data discarded");
			break;
		}
	}
	php_stream_rewind(body);
}

static void read_body(void)
{
	if (surus_request->id && !is_too_large()) {
		/* There is a stream if request_parse_body() reads. */
		if (!SG(request_info).request_body && !give_whole()) {
			give_empty();
		}
		if (SG(request_info).request_body) {
			append_rest(SG(request_info).request_body);
			return;
		}
	}
	/* PHP's reader reports what is wrong. */
	sapi_read_standard_form_data();
}

/* As php_default_post_reader(), for types without a reader. */
static void read_other(void)
{
	if (strcmp(SG(request_info).request_method, "POST") == 0 && !SG(request_info).post_entry) {
		read_body();
	}
}

void surus_body_prepare(void)
{
	const char *type = SG(request_info).content_type;
	/* PHP reads parts block by block (rfc1867_post_handler), and the fields of a form that is too
	 * large must not be found in the stream. */
	bool is_form = SG(request_info).post_entry ||
	               (type && strncasecmp(type, ZEND_STRL("multipart/")) == 0);

	if (!surus_request->id || surus_request->body_len == 0 || SG(request_info).request_body) {
		return;
	}
	if (is_form || !give_whole()) {
		give_empty();
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
