/* Forms that come with another method than POST, for which PHP reads none: as request_parse_body()
 * of PHP 8.4. */
#ifndef SURUS_PHP_FORM_PARSER_H
#define SURUS_PHP_FORM_PARSER_H

#include <stdbool.h>

struct _zval_struct;

/* Reads the form of the event in our hands, if its body is one with parts and has not been read. */
bool surus_form_read(struct _zval_struct *fields, struct _zval_struct *files);

#endif
