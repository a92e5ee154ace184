/* What the boot has left that its workers cannot have: connections, pipes, threads, children, of
 * which each would have a part of what is */
#ifndef SURUS_REWIND_BOOT_CHECK_H
#define SURUS_REWIND_BOOT_CHECK_H

/* In the template, before the snapshot: NULL, or what the boot has left that workers cannot share,
 * in words. */
const char *surus_boot_refuses(void);

#endif
