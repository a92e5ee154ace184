/* Adds the header of fastcgi.error_header to the response of a script that has failed. */
#ifndef SURUS_PHP_ERROR_HEADER_H
#define SURUS_PHP_ERROR_HEADER_H

/* When a script has ended, before its shutdown functions. */
void surus_error_header(void);

#endif
