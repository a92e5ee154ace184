/* Ends the boot: checks what it has left, takes the checkpoint, and starts to serve. */
#ifndef SURUS_APP_BOOT_COMPLETE_H
#define SURUS_APP_BOOT_COMPLETE_H

#include <stdbool.h>

struct _zend_file_handle;

/* Ends the boot when the script calls a function that serves. True: this process takes requests.
 * False: none will come. */
bool surus_boot_done(void);

/* Whether the boot has ended. */
bool surus_boot_is_done(void);

/* The file handle of the script. PHP has compiled the script by the time it runs, so the handle is
 * no longer read. */
extern struct _zend_file_handle surus_boot_script;

#endif
