/* Gives the answer of a script that has ended with a fatal error, or with exit(255), the header
 * that fastcgi.error_header names, as php-fpm does before the functions that run at the end
 * (sapi/fpm/fpm/fpm_main.c). */
#include "php/error_header.h"

#include <string.h>

#include <php.h>
#include <SAPI.h>
#include <php_ini.h>

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
