/* The file handle of the script that boots. */
#ifndef SURUS_APP_BOOT_SCRIPT_H
#define SURUS_APP_BOOT_SCRIPT_H

struct _zend_file_handle;

/* Not read any more once the script runs, because PHP has compiled the file. */
extern struct _zend_file_handle surus_boot_script;

/* Closes the file of the script that runs, if it is open. */
void surus_boot_script_close(void);

#endif
