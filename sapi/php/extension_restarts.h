/* Restarts extensions between two requests (`worker`), so that they free what belongs to one. */
#ifndef SURUS_PHP_EXTENSION_RESTARTS_H
#define SURUS_PHP_EXTENSION_RESTARTS_H

/* At the end of the boot. */
void surus_restarts_save(void);
/* At the end of a request, while there is output, because an extension may report errors. Does
 * nothing without surus_restarts_save(). */
void surus_restarts_run(void);

#endif
