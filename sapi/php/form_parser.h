/* Parses forms of requests other than POST, which PHP does not parse. */
#ifndef SURUS_PHP_FORM_PARSER_H
#define SURUS_PHP_FORM_PARSER_H

#include <stdbool.h>

struct _zval_struct;

/* Reads the form of the current request, if its body is multipart and has not been read. */
bool surus_form_read(struct _zval_struct *fields, struct _zval_struct *files);

#endif
