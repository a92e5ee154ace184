/* Notices which files PHP opens, asks about and changes during the boot. */
#ifndef SURUS_PHP_FILE_HOOKS_H
#define SURUS_PHP_FILE_HOOKS_H

/* At the start of a boot, after surus_boot_files_begin(). */
void surus_file_hooks_install(void);
/* From here on, scripts only: what else warm-ups read belongs to requests. */
void surus_file_hooks_leave_data(void);
/* At the end of the boot. */
void surus_file_hooks_remove(void);

#endif
