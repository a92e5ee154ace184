/* The memory of this process, put back as it was (snapshot.c), and what belongs to that. */
#ifndef SURUS_SNAPSHOT_H
#define SURUS_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* --- snapshot.c --- */

/* Copies the memory of this process and shares the copy with those that it forks from then on. NULL, or why it cannot be. The
 * descriptors are those of the files of that name in /proc/self. */
const char *surus_snapshot_take(int maps, int smaps, int pagemap);
/* Marks the place where putting back leads to: returns once now and once more after each surus_snapshot_put_back. NULL, or why it
 * cannot be. The descriptors are those of the files of that name in /proc/self. */
const char *surus_snapshot_mark(int maps, int pagemap, int statm);
/* Finds out what has to be put back, and puts the address space into shape, which is as it was if the event has made no system calls.
 * NULL, or why putting back would not be complete. */
const char *surus_snapshot_check(bool no_calls);
/* Puts everything back, the signal mask too where it may be another, and goes on where the mark was set. After surus_snapshot_check only. */
_Noreturn void surus_snapshot_put_back(bool mask);

/* --- exempt.c: memory that is never put back --- */

/* Maps such memory. NULL on failure. Before the snapshot only. */
void *surus_exempt_map(size_t size);
void surus_exempt_unmap(void *memory);
/* Where the exempt memory ends, or `end`, when there is some at `start`; 0 when there is none, and then `next` is where the next begins, or
 * `end`. */
uintptr_t surus_exempt_until(uintptr_t start, uintptr_t end, uintptr_t *next);

/* --- mappings.c: what this process has mapped --- */

/* Makes room for what is noted here; before the snapshot. */
bool surus_mappings_prepare(void);
/* Reads what there is now, in the file /proc/self/maps. False: that cannot be. */
bool surus_mappings_read(int maps);
/* Of what there is now, notes what the kernel wipes in a fork (MADV_WIPEONFORK), where libc keeps random numbers that it has fetched ahead: it is
 * no part of the snapshot. The descriptor is that of /proc/self/smaps. False: it cannot be read, or is too much. */
bool surus_mappings_note_wiped(int smaps);
/* Wipes that, as a fork would. */
void surus_mappings_wipe(void);
/* Of what has been read: is the stack in use the process's own, and less than `most` bytes of it in use? */
bool surus_mappings_is_on_stack(size_t most);
/* Of what has been read: calls `each` for all private writable memory but the stack and what is exempt. False: it has. */
bool surus_mappings_each_writable(bool (*each)(uintptr_t start, uintptr_t end, int prot, bool anonymous));
/* Notes what there is now: the mark. The descriptors are those of the files of that name in /proc/self. False: it cannot be read. */
bool surus_mappings_mark(int maps, int statm);
/* Where the stack ended at the mark; 0 when it was not there. */
uintptr_t surus_mappings_stack_end(void);
/* Puts it back as it was at the mark. NULL, or why that cannot be. */
const char *surus_mappings_put_back(void);

/* --- pages.c: the pages of the snapshot --- */

enum { SURUS_REGIONS = 4096 };

/* A copy of the memory of this process: the file, and where in memory it belongs. */
struct surus_copy {
	const unsigned char *bytes; /* the file, mapped to be read */
	size_t size;
	struct surus_region {
		uintptr_t start, end;
		size_t offset; /* in the file */
		int prot;
		bool anonymous; /* no file is behind it: what nobody has touched is zeros */
	} regions[SURUS_REGIONS];
	size_t region_count;
};

/* Makes room for what is noted here, as surus_mappings_prepare. */
bool surus_pages_prepare(void);
/* In the template: here are the pages of this copy, of which `bytes` may still be missing. NULL, or why they cannot be known. The
 * descriptor is that of /proc/self/pagemap. */
const char *surus_pages_begin(const struct surus_copy *copy, int pagemap);
/* In a worker: what is written from here on is put back; what has been written is its own beginning. False: that is too much. */
bool surus_pages_mark(int pagemap);
/* Finds out which have been written. NULL, or why that cannot be. */
const char *surus_pages_check(void);
/* Puts them back. After surus_pages_check only. */
void surus_pages_put_back(void);
/* Compares every byte; the first address that differs from the mark, or NULL. */
const void *surus_pages_difference(void);

/* --- restore.c: bytes that become again what they were --- */

/* Makes `to` what `from` is; `next_to` and `next_from` are what the next call will have. Did anything differ? */
typedef bool surus_restore(void *to, const void *from, size_t size, const void *next_to, const void *next_from);
/* The fastest way that this processor has. */
surus_restore *surus_restore_fastest(void);

/* --- chunks.c: the memory of PHP's allocator --- */

/* Gives PHP a heap whose chunks we know; before the first request. */
bool surus_chunks_install(void);
/* From here on chunks are a request's, and go with it. */
void surus_chunks_begin(void);
/* In the template: those that there are, are the boot's, and so are those that come. */
void surus_chunks_pause(void);
/* Takes back what the request has. NULL, or why that cannot be. */
const char *surus_chunks_end(void);
/* Where the chunk ends that has this address and that we keep for the next request; 0 when none has, and then `next` is where one
 * begins, if that is before what it was. */
uintptr_t surus_chunks_until(uintptr_t at, uintptr_t *next);
/* Pages of the chunks that we keep. */
size_t surus_chunks_pages(void);

/* --- heap.c: what of PHP's heap the boot does not use --- */

/* Fills the gaps between the blocks of the boot, so that what is allocated from here on lies in pages of its own. */
void surus_heap_settle(void);
/* Calls `each` for every free page. */
void surus_heap_each_free(void (*each)(uintptr_t page));

/* --- kernel.c: what a request leaves in the kernel --- */

/* Watches over functions that change the process; when PHP has started. */
bool surus_kernel_prepare(void);
enum { SURUS_DESCRIPTORS = 512 };
/* At the end of the boot: notes which descriptors it has opened. All that are open become bits of SURUS_DESCRIPTORS bytes. False: they
 * cannot be listed. */
bool surus_kernel_note_boot(unsigned char *open_ones, int *last);
/* Has the boot opened this descriptor? */
bool surus_kernel_is_boots(int fd);
/* In a worker, before the mark: makes its descriptors its own and notes their state. NULL, or why that cannot be. */
const char *surus_kernel_note(void);
/* Puts back what is cheap, after an event without system calls nothing. NULL, or what cannot be put back. */
const char *surus_kernel_put_back(bool no_calls);
/* Is all that is put back as it was at the mark? */
bool surus_kernel_is_as_it_was(void);
/* Opens a file of /proc/self; -1 on failure. They are root's where a process that was root may not be dumped. */
int surus_open_own(const char *path);
/* Does this process have more than one thread? */
bool surus_has_threads(void);

/* --- calls.c: system calls of an event --- */

/* In a worker, before the mark. */
void surus_calls_prepare(void);
/* Begins to watch the event in our hands, unless it is likely to make some. */
void surus_calls_watch(void);
/* Ends that. Has it certainly made none? */
bool surus_calls_none(void);

/* --- locks.c: locks on what the boot has opened --- */

/* Watches over functions that lock; when PHP has started. */
void surus_locks_watch(void);
/* In a worker, before the mark: an event may lock this file of the boot. */
void surus_locks_note(int fd, const struct stat *file);
/* Releases what an event holds; before its end is told, since the next may want it. */
void surus_locks_release(void);

/* --- flags.c: status flags of what a worker and its boot have open --- */

/* Watches over functions that change them; when PHP has started. */
void surus_flags_watch(void);
/* In a worker, before its first event: an event may change those of this descriptor. */
void surus_flags_note(int fd);
/* At the end of an event: puts them back, if one may have changed them. */
void surus_flags_put_back(void);

/* --- log.c: php://stderr of the boot --- */

/* At the end of the boot, in the template: this descriptor leads to its stdout or stderr. */
void surus_log_note(int fd);
bool surus_log_is(int fd);
/* Opens what `log` leads to, so that it has status flags of its own. -1 on failure. */
int surus_log_open(int log, int flags);
/* In a worker that has booted by itself, before it speaks: has such descriptors lead to its own log. */
void surus_log_take(void);

/* --- temporary.c: temporary files of the boot --- */

/* Watches over tmpfile(); when PHP has started. */
void surus_temporary_watch(void);
/* At the end of the boot: notes that this file is a temporary one, if it is. */
void surus_temporary_note(int fd, const struct stat *file);
bool surus_temporary_is(int fd);
/* A descriptor of a copy; -1 on failure. */
int surus_temporary_copy(int fd);
/* Has this copy been written to? */
bool surus_temporary_is_written(const struct stat *copy);

/* --- anonymous.c: descriptors of the boot that lead to no file --- */

/* What workers would share; NULL when it is nothing of that kind. */
const char *surus_anonymous_shared(int fd);
/* In a worker, before the mark: if it is a counter (eventfd(2)), it becomes the worker's own. */
bool surus_counter_own(int fd, uint64_t *count);
/* False when that cannot be. */
bool surus_counter_put_back(int fd, uint64_t count);

/* --- pairs.c: pairs of the boot --- */

/* At the end of the boot: notes its pairs of sockets. NULL, or why workers cannot have such a pair. */
const char *surus_pairs_note_sockets(const unsigned char *open_ones, int last);
/* The same for an end of a pipe whose both ends are the boot's. False: something is in it. */
bool surus_pairs_note_pipe(int fd, const struct stat *file);
/* Has it been noted? */
bool surus_pairs_has(int fd);
/* In a worker, before the mark: makes pairs of its own. NULL, or why that cannot be. */
const char *surus_pairs_own(void);
/* After an event: has it left nothing in them? */
bool surus_pairs_are_empty(void);

/* --- streams.c --- */

/* PHP's own stream of a file or pipe; NULL where a library has opened it. */
struct _php_stream *surus_stream_of(int fd);

/* --- refuse.c: what the boot may not leave to its workers --- */

/* In the template, before the snapshot: NULL, or what the boot has left that workers cannot share, in words. */
const char *surus_boot_refuses(void);

/* --- random.c --- */

/* When PHP has started: watches over the generators of GMP and libuuid. */
void surus_random_prepare(void);
/* At the end of the boot: has generators start anew in every fork, and notes those that the boot has made. */
void surus_random_note(void);
/* In a fork, and after each rewind: sees to it that no generator gives what it gave before. */
void surus_random_renew(void);

#endif
