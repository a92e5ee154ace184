/* Finds headers, sessions and output buffers of the boot, which no response has.
 *
 * A front controller may begin with session_start(). Under php-fpm every request runs it; a boot
 * runs it once, and has no client. */
#include "app/boot_response.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <php.h>
#include <SAPI.h>
#include <php_output.h>

#include "base/settings.h"
#include "php/request_extensions.h"

/* PHP's own, by its settings: each request gets them, too. */
static struct {
	int buffers; /* output_buffering */
	bool session; /* session.auto_start */
	char *headers[8]; /* of that session */
	size_t count;
} own;

static char found[160];

static bool has_name(const sapi_header_struct *header, const char *name)
{
	size_t len = strlen(name);

	return header->header_len > len && header->header[len] == ':' &&
	       strncasecmp(header->header, name, len) == 0;
}

/* PHP adds its type of content to the list when the boot prints something. */
static bool is_of_php(const sapi_header_struct *header)
{
	return has_name(header, "X-Powered-By") ||
	       (SG(headers_sent) && has_name(header, "Content-Type"));
}

static bool is_own(const char *text)
{
	for (size_t i = 0; i < own.count; i++) {
		if (strcmp(own.headers[i], text) == 0) {
			return true;
		}
	}
	return false;
}

/* The first header that not every response has. NULL: there is none. */
static const sapi_header_struct *find_header(void)
{
	zend_llist_position position;

	for (sapi_header_struct *h = zend_llist_get_first_ex(&SG(sapi_headers).headers, &position); h;
	     h = zend_llist_get_next_ex(&SG(sapi_headers).headers, &position)) {
		if (!is_of_php(h) && !is_own(h->header)) {
			return h;
		}
	}
	return NULL;
}

void surus_boot_response_begin(void)
{
	const sapi_header_struct *header;

	surus_extensions_find();
	own.buffers = php_output_get_level();
	own.session = surus_session_is_active();
	own.count = 0;
	while (own.count < sizeof(own.headers) / sizeof(*own.headers) && (header = find_header())) {
		own.headers[own.count++] = pestrdup(header->header, 1);
	}
}

/* Finds out what responses would lack: "has started a session". NULL: nothing. */
static const char *find(void)
{
	const sapi_header_struct *header = find_header();

	if (!own.session && surus_session_is_active()) {
		return "has started a session";
	}
	if (header) {
		/* A value may be a secret. */
		const char *colon = memchr(header->header, ':', header->header_len);
		size_t len = colon ? (size_t)(colon - header->header) : header->header_len;
		snprintf(found, sizeof(found), "has set the header %.*s",
		         (int)(len < 80 ? len : 80), header->header);
		return found;
	}
	if (php_output_get_level() > own.buffers) {
		return "has opened an output buffer (ob_start)";
	}
	return NULL;
}

/* WordPress can boot such a plugin at any time, and a boot that fails would leave the old one in
 * service. So its boot script serves, like one of the user's own. */
static bool must_keep_responses(void)
{
	return surus_settings.code
	       && strcmp(surus_settings.code_name, "surus://boot/wordpress.php") != 0;
}

bool surus_boot_response_check(bool reports)
{
	const char *what = find();

	if (!what) {
		return true;
	}
	if (must_keep_responses()) {
		fprintf(stderr,
		        "surus-php: %s, or a file that it includes, %s before the framework handles the "
		        "request; a boot would do so once, and responses would lack it; move it to a "
		        "middleware, or choose the engine `classic` (engine.name)\n",
		        surus_settings.script, what);
		return false;
	}
	if (reports) {
		fprintf(stderr,
		        "surus-php: %s, or a file that it includes, %s in the boot, which has no client, "
		        "so no response has it; do so while a request is served, or choose the engine "
		        "`classic` (engine.name)\n",
		        surus_settings.script, what);
	}
	return true;
}
