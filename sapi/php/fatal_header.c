/* Tells Surus of the script's fatal error if display_errors is on: type, line, file and message.
 *
 * Surus removes the header from every response. It makes a page of it only for the clients that
 * error_pages.details names. */
#include "php/fatal_header.h"

#include <ctype.h>
#include <stdio.h>

#include <php.h>
#include <php_globals.h>

/* Each byte takes up to three. */
enum { MAX_FILE = 1024, MAX_MESSAGE = 6 * 1024 };

/* PHP's own encoder allocates memory, of which the error may be that there is none. */
static size_t encode(char *to, const zend_string *text, size_t max)
{
	static const char digits[] = "0123456789ABCDEF";
	size_t used = 0;

	for (size_t i = 0; i < ZSTR_LEN(text) && i < max; i++) {
		unsigned char c = (unsigned char)ZSTR_VAL(text)[i];
		if (isalnum(c) || c == '/' || c == '.' || c == '-' || c == '_') {
			to[used++] = (char)c;
		} else {
			to[used++] = '%';
			to[used++] = digits[c >> 4];
			to[used++] = digits[c & 15];
		}
	}
	return used;
}

const char *surus_fatal_header(size_t *len)
{
	const int fatal = E_ERROR | E_PARSE | E_CORE_ERROR | E_COMPILE_ERROR | E_USER_ERROR |
		E_RECOVERABLE_ERROR;
	/* Not on the stack, which is restored after each request. */
	static char line[64 + 3 * (MAX_FILE + MAX_MESSAGE)];
	size_t used;

	if (!(PG(last_error_type) & fatal) || PG(display_errors) != PHP_DISPLAY_ERRORS_STDOUT ||
	        !PG(last_error_message) || !PG(last_error_file)) {
		return NULL;
	}
	used = (size_t)snprintf(line, sizeof(line), "Surus-Fatal: %d %d ", PG(last_error_type),
	        PG(last_error_lineno));
	used += encode(line + used, PG(last_error_file), MAX_FILE);
	line[used++] = ' ';
	used += encode(line + used, PG(last_error_message), MAX_MESSAGE);
	*len = used;
	return line;
}
