/* The functions and ini settings that php-fpm gives to PHP code, under the module name that it has
 * there. */
#ifndef SURUS_APP_FUNCTIONS_H
#define SURUS_APP_FUNCTIONS_H

struct _zend_module_entry;

extern struct _zend_module_entry surus_module_entry;

#endif
