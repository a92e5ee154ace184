/* Ends the boot: checks what it has left, takes the checkpoint, and starts to serve. */
#ifndef SURUS_APP_BOOT_COMPLETE_H
#define SURUS_APP_BOOT_COMPLETE_H

#include <stdbool.h>

struct _zend_file_handle;

/* The script has come to serve. True: here, where events are to be taken. False: there will be none. */
bool surus_boot_done(void);

/* Has it? */
bool surus_boot_is_done(void);

/* The script; it is compiled when it runs, and so nobody reads it any more. */
extern struct _zend_file_handle surus_boot_script;

#endif
