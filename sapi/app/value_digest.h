/* Describes a PHP value briefly, with a digest of everything in it, so that two can be compared. */
#ifndef SURUS_APP_VALUE_DIGEST_H
#define SURUS_APP_VALUE_DIGEST_H

#include <php.h>

/* A short description of a value; its digest follows after a NUL, which is not printed. */
zend_string *surus_value_describe(const zval *value);

#endif
