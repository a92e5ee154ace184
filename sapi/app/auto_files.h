/* auto_prepend_file and auto_append_file of a booted application: they belong to its requests, and
 * the */
#ifndef SURUS_APP_AUTO_FILES_H
#define SURUS_APP_AUTO_FILES_H

#include <stdbool.h>

/* Before the boot, which is no request: keeps PHP from running them there. */
void surus_auto_files_take(void);
/* In the directory where the boot begins: relative names are those of its files for all
 * requests. */
void surus_auto_files_pin(void);
/* May they run for every request of this engine? False: said on stderr why not. */
bool surus_auto_files_are_repeatable(void);
/* Runs it, if there is one. False: the event ends here. */
bool surus_auto_prepend(void);
void surus_auto_append(void);
/* At the end of an event, where the process goes on as it is: destroys what the files have made.
 * May end in a fatal error. */
void surus_auto_files_end(void);

#endif
