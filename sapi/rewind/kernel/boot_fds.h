/* Records which descriptors the boot has opened. */
#ifndef SURUS_REWIND_KERNEL_BOOT_FDS_H
#define SURUS_REWIND_KERNEL_BOOT_FDS_H

#include <stdbool.h>
#include <stdint.h>

/* At the end of the boot: records the descriptors that it has opened. Sets the bits of all open
 * ones in SURUS_DESCRIPTORS bytes. False: they cannot be listed. */
bool surus_boot_fds_save(unsigned char *open_ones, int *last);
/* Whether the boot has opened this descriptor. */
bool surus_boot_fds_has(int fd);

/* Whether the resource with this number is the boot's. */
bool surus_boot_fds_has_resource(int64_t handle);

/* Before the boot: records the open descriptors. False: no memory. */
bool surus_boot_fds_prepare(void);

/* Lists the open descriptors below 4096, as bits of SURUS_DESCRIPTORS bytes, and the highest of
 * all. False: they cannot be listed. */
bool surus_boot_fds_find_open(unsigned char *open_ones, int *last);

#endif
