/* Functions of FrankenPHP, beside its loop (app/serve.c), that php-fpm has under no name. */
#ifndef SURUS_PHP_FRANKENPHP_H
#define SURUS_PHP_FRANKENPHP_H

#include <stdbool.h>

bool surus_frankenphp_register(int type);

#endif
