/* Provides the body of a request as PHP's stream, without a named file. */
#ifndef SURUS_PHP_REQUEST_BODY_H
#define SURUS_PHP_REQUEST_BODY_H

/* When PHP has started: installs the reader. */
void surus_body_install(void);
/* When PHP has read the forms of a request: prepares the stream of php://input, if it has none. */
void surus_body_prepare(void);

/* At the end of a request, in a process that continues: closes the body's streams, which PHP closes
 * at the end of its own request. */
void surus_body_close(void);

/* Before the end of a request whose body may still be arriving: PHP does not wait for the rest. */
void surus_body_leave_rest(void);

#endif
