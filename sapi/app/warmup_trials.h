/* Decides which warm-ups are tried in a fork first, and shares the results between workers. */
#ifndef SURUS_APP_WARMUP_TRIALS_H
#define SURUS_APP_WARMUP_TRIALS_H

#include <stdbool.h>

/* In the master process, before the first fork. False: no memory. */
bool surus_warmup_trials_start(void);
/* Before the boot script runs. */
void surus_warmup_trials_boot_begins(void);
/* In a worker that has booted, before it serves: unmaps the results, so that no request can forge
 * what later workers believe. */
void surus_warmup_trials_boot_ended(void);

/* NULL if a fork can run a request without harm to what this process shares with others. Otherwise
 * what the boot has left. */
const char *surus_warmup_obstacle(void);

/* Before a fork tries a warm-up, and after it: offsets and flags of open files, which the kernel
 * keeps for both processes. */
void surus_warmup_files_save(void);
void surus_warmup_files_restore(void);

/* In the fork, before it serves: gives it its own copies of the boot's temporary files, whose
 * contents the boot would share. False: one cannot be copied. */
bool surus_warmup_files_separate(void);
/* In the fork: whether something was written to these copies. */
bool surus_warmup_files_written(void);

/* Whether another worker has tried the warm-up with this number, which begins at 1. */
bool surus_warmup_is_known(int number);
bool surus_warmup_is_left_out(int number);
/* Records a result. True: this worker is the first, and reports it. */
bool surus_warmup_record(int number, bool is_left_out);

#endif
