/* The body of a request as PHP reads it, and its end. PHP's own reader
 * (sapi_read_standard_form_data) */
#ifndef SURUS_PHP_REQUEST_BODY_H
#define SURUS_PHP_REQUEST_BODY_H

/* When PHP has started: has it read bodies without a file of its own. */
void surus_body_install(void);
/* At the end of an event, where the process goes on as it is: closes its streams, which PHP leaves
 * to the end of its request. */
void surus_body_close(void);

#endif
