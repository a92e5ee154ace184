/* The SAPI module: connects PHP's input and output to the current request, as php-fpm does. */
#ifndef SURUS_PHP_SAPI_MODULE_H
#define SURUS_PHP_SAPI_MODULE_H

#include <stdbool.h>
#include <stdint.h>

struct _zend_module_entry;
/* Starts PHP with the extension that defines the functions of Surus. False: PHP has reported the
 * reason on stderr. */
bool surus_php_startup(const char *program, struct _zend_module_entry *functions);
void surus_php_shutdown(void);
/* Serves the current request completely: request startup, script, request shutdown, end of the
 * request. */
void surus_php_serve(void);
/* In a forked worker, before its first request. */
void surus_php_after_fork(void);
/* Bytes of response bodies that this process has written. */
uint64_t surus_php_written(void);
/* Discards what PHP and its scripts log except fatal errors, which go to stderr. */
void surus_php_log_fatal_only(bool only);
/* Fills SG(request_info) from the current request. */
void surus_php_fill_request_info(void);

/* Sends the header section, once. False: it could not be sent. */
bool surus_php_headers_send(int status);

#endif
