/* Defines the functions and ini settings that php-fpm provides, under php-fpm's module name. */
#ifndef SURUS_APP_FUNCTIONS_H
#define SURUS_APP_FUNCTIONS_H

struct _zend_module_entry;

extern struct _zend_module_entry surus_module_entry;

#endif
