/* Chooses the php.ini, and checks that PHP has read all of its ini files. */
#ifndef SURUS_PHP_INI_FILES_H
#define SURUS_PHP_INI_FILES_H

#include <stdbool.h>

/* Sets `file` to the php.ini that PHP must read; unchanged: PHP searches for it. False: the reason
 * is on stderr. */
bool surus_ini_choose(char **file);
/* After PHP has started. False: PHP has left out a file; the reason is on stderr. */
bool surus_ini_check(void);

#endif
