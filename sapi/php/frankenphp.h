/* Defines functions of FrankenPHP that php-fpm lacks; its request loop is in app/serve.c. */
#ifndef SURUS_PHP_FRANKENPHP_H
#define SURUS_PHP_FRANKENPHP_H

#include <stdbool.h>

bool surus_frankenphp_register(int type);

#endif
