/* Runs auto_prepend_file and auto_append_file around the requests of a booted application. */
#ifndef SURUS_APP_AUTO_FILES_H
#define SURUS_APP_AUTO_FILES_H

#include <stdbool.h>

/* Before the boot: keeps PHP from running the files around the boot's script. */
void surus_auto_files_take(void);
/* Resolves relative names in the working directory, for all requests. Called for each directory
 * where the files may be; the last one is that of the boot. */
void surus_auto_files_pin(bool is_last);
/* Whether the files can run for every request of this engine. False: the reason is on stderr. */
bool surus_auto_files_are_repeatable(void);
/* Runs the file, if there is one. False: the request ends here. */
bool surus_auto_prepend(void);
void surus_auto_append(void);
/* At the end of a request, in a process that continues as it is: destroys the objects of the files.
 * May end in a fatal error. */
void surus_auto_files_end(void);

#endif
