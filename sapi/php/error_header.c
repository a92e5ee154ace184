/* Adds the header of fastcgi.error_header to the response of a script that ended with a fatal
 * error.
 *
 * exit(255) counts as one. php-fpm adds the header before the shutdown functions, too
 * (sapi/fpm/fpm/fpm_main.c). */
#include "php/error_header.h"

#include <string.h>

#include <php.h>
#include <SAPI.h>

#include "base/scoreboard_layout.h"

void surus_error_header(void)
{
	const char *header;

	if (EG(exit_status) != 255 || SG(headers_sent)) {
		return;
	}
	header = zend_ini_string("fastcgi.error_header", sizeof("fastcgi.error_header") - 1, 0);
	if (header && *header) {
		zend_try {
			sapi_header_line line = {.line = header, .line_len = strlen(header)};
			sapi_header_op(SAPI_HEADER_REPLACE, &line);
		} zend_end_try();
	}
}
