/* Notes which descriptors the boot has opened. */
#ifndef SURUS_REWIND_KERNEL_BOOT_FDS_H
#define SURUS_REWIND_KERNEL_BOOT_FDS_H

#include <stdbool.h>
#include <stdint.h>

/* At the end of the boot: notes which descriptors it has opened. All that are open become bits of
 * SURUS_DESCRIPTORS bytes. False: they cannot be listed. */
bool surus_kernel_note_boot(unsigned char *open_ones, int *last);
/* Has the boot opened this descriptor? */
bool surus_kernel_is_boots(int fd);

/* Is the resource of this number the boot's? */
bool surus_kernel_is_boots_resource(int64_t handle);

/* Before the boot: notes the descriptors that are open already. False: no memory. */
bool surus_boot_fds_prepare(void);

/* The descriptors below 4096 that are open, as bits of SURUS_DESCRIPTORS bytes, and the last of
 * all. False: they cannot be listed. */
bool surus_open_descriptors(unsigned char *open_ones, int *last);

#endif
