/* The SAPI: PHP's side of an event, faithful to php-fpm (sapi/fpm/fpm/fpm_main.c of PHP 8.2 is the
 * reference; the oracle */
#ifndef SURUS_PHP_SAPI_MODULE_H
#define SURUS_PHP_SAPI_MODULE_H

#include <stdbool.h>
#include <stdint.h>

struct _zend_module_entry;
/* PHP's module startup, with the extension that has our functions. False: PHP has said why on
 * stderr. */
bool surus_php_startup(const char *program, struct _zend_module_entry *functions);
void surus_php_shutdown(void);
/* Serves the event in our hands completely: request startup, script, request shutdown, end of the
 * event. */
void surus_php_serve(void);
/* To be called in a forked worker before its first event. */
void surus_php_after_fork(void);
/* How many bytes of bodies this process has written. */
uint64_t surus_php_written(void);
/* Tells PHP what is asked: fills SG(request_info) from the event in our hands. */
void surus_php_fill_request_info(void);

/* Sends the header, once. False: it could not be sent. */
bool surus_headers_send(int status);

#endif
