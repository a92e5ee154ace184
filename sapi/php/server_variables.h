/* Provides a request's variables: $_SERVER, $_ENV, getenv() and filter_input(). */
#ifndef SURUS_PHP_SERVER_VARIABLES_H
#define SURUS_PHP_SERVER_VARIABLES_H

struct _zval_struct;

/* While PHP starts: interns the names of common variables. */
void surus_variables_intern(void);
/* When PHP has started. */
void surus_variables_start(void);
/* Fills $_SERVER. */
void surus_variables_register_server(struct _zval_struct *array);
/* Puts the process's environment into `array`, without variables of a request. */
void surus_variables_import_environment(struct _zval_struct *array);

#endif
