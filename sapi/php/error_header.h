/* Gives the answer of a script that has ended with a fatal error, or with exit(255), the header
 * that fastcgi.error_header */
#ifndef SURUS_PHP_ERROR_HEADER_H
#define SURUS_PHP_ERROR_HEADER_H

/* When a script has ended, before the functions that run at its end. */
void surus_error_header(void);

#endif
