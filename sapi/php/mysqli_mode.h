/* Reads and sets the mode of mysqli_report(). */
#ifndef SURUS_PHP_MYSQLI_MODE_H
#define SURUS_PHP_MYSQLI_MODE_H

#include <php.h>

/* Returns the mode; 0 without the extension. Sets it instead, if `to` is not NULL. */
zend_long surus_mysqli_mode(const zend_long *to);

#endif
