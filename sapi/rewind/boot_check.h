/* Rejects a boot that leaves something open that its workers cannot share. */
#ifndef SURUS_REWIND_BOOT_CHECK_H
#define SURUS_REWIND_BOOT_CHECK_H

/* In the prototype process, before the snapshot: NULL, or what the boot has left, as a message. */
const char *surus_boot_check(void);

#endif
