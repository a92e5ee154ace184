/* The stream wrapper `surus`, so that PHP code may ask for the boot script, which is not a file. */
#ifndef SURUS_PHP_CODE_WRAPPER_H
#define SURUS_PHP_CODE_WRAPPER_H

#include <stdbool.h>

/* While PHP starts. False: PHP has refused the wrapper. Does nothing without a boot script of
 * Surus. */
bool surus_code_wrapper_install(void);

#endif
