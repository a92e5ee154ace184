/* Records which descriptors the boot has opened. */
#include "rewind/kernel/boot_fds.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include <php.h>

#include "base/persistent_map.h"
#include "base/procfs.h"

/* In persistent memory. */
static struct boot_fds {
	zend_long first_resource; /* resources from this number on are a request's */
	/* descriptors that were open before the boot, as bits */
	unsigned char before[SURUS_DESCRIPTORS];
	unsigned char of_boot[SURUS_DESCRIPTORS]; /* descriptors that the boot has opened, as bits */
} *boot;

bool surus_boot_fds_prepare(void)
{
	int last;

	boot = surus_persistent_alloc(sizeof(*boot));
	if (boot) {
		surus_boot_fds_find_open(boot->before, &last);
	}
	return boot != NULL;
}

bool surus_boot_fds_find_open(unsigned char *open_ones, int *last)
{
	int list = surus_procfs_open("/proc/self/fd");
	DIR *directory = list < 0 ? NULL : fdopendir(list);
	struct dirent *entry;

	if (!directory) {
		return false;
	}
	memset(open_ones, 0, SURUS_DESCRIPTORS);
	*last = 2;
	while ((entry = readdir(directory))) {
		int fd = atoi(entry->d_name);
		if (entry->d_name[0] != '.' && fd != dirfd(directory) && fd < 4096) {
			open_ones[fd / 8] |= (unsigned char)(1 << fd % 8);
			*last = fd > *last ? fd : *last;
		}
	}
	closedir(directory);
	return true;
}

bool surus_boot_fds_save(unsigned char *open_ones, int *last)
{
	if (!surus_boot_fds_find_open(open_ones, last)) {
		return false;
	}
	for (size_t i = 0; boot && i < sizeof(boot->of_boot); i++) {
		boot->of_boot[i] = (unsigned char)(open_ones[i] & ~boot->before[i]);
	}
	if (boot) {
		boot->first_resource = zend_hash_next_free_element(&EG(regular_list));
	}
	return true;
}

bool surus_boot_fds_has(int fd)
{
	return boot && fd < 4096 && boot->of_boot[fd / 8] & 1 << fd % 8;
}

bool surus_boot_fds_has_resource(int64_t handle)
{
	return handle < boot->first_resource;
}
