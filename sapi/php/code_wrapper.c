/* The stream wrapper `surus`, so that PHP code may ask for the boot script, which is not a file.
 *
 * `surus://boot/…` is the file of the lowest frames of every stack trace, so error pages ask
 * whether it exists and show lines of it. Without a wrapper each such question is a warning, which
 * frameworks turn into an exception. OPcache does not cache files of this scheme. */
#include "php/code_wrapper.h"

#include <string.h>

#include <php.h>
#include <php_memory_streams.h>
#include <php_streams.h>

#include "base/settings.h"

/* There is no file. A failure is silent in the functions that ask, such as file_exists(). */
static int find(php_stream_wrapper *wrapper, const char *url, int flags, php_stream_statbuf *state,
        php_stream_context *context)
{
	(void)wrapper;
	(void)url;
	(void)flags;
	(void)state;
	(void)context;
	return -1;
}

/* The text of the boot script, without the classes in its first line; nothing for code that the
 * script has evaluated: its name continues with `(`. NULL: another name. */
static zend_string *text_of(const char *url)
{
	static const char start[] = "<?php";
	size_t len = strlen(surus_settings.code_name);

	if (strncmp(url, surus_settings.code_name, len) != 0) {
		return NULL;
	}
	if (url[len] == '(') {
		return ZSTR_EMPTY_ALLOC();
	}
	const char *lines = strchr(surus_settings.code, '\n');
	return url[len] || !lines ? NULL
	        : zend_string_concat2(start, sizeof(start) - 1, lines, strlen(lines));
}

static php_stream *open_text(php_stream_wrapper *wrapper, const char *url, const char *mode,
        int options, zend_string **opened, php_stream_context *context STREAMS_DC)
{
	zend_string *text = strpbrk(mode, "waxc+") ? NULL : text_of(url);
	php_stream *stream;

	(void)wrapper;
	(void)options;
	(void)opened;
	(void)context;
	if (!text) {
		return NULL;
	}
	stream = _php_stream_memory_open(TEMP_STREAM_READONLY, text STREAMS_REL_CC);
	zend_string_release(text);
	return stream;
}

static const php_stream_wrapper_ops operations = {
	.stream_opener = open_text,
	.url_stat = find,
	.label = "surus",
};

/* Not a URL, so that `allow_url_fopen` does not matter. */
static const php_stream_wrapper wrapper = {.wops = &operations};

bool surus_code_wrapper_install(void)
{
	return !surus_settings.code || php_register_url_stream_wrapper("surus", &wrapper) == SUCCESS;
}
