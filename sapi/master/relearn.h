/* Refreshes what the master process has learned from requests before it forks the next worker. */
#ifndef SURUS_MASTER_RELEARN_H
#define SURUS_MASTER_RELEARN_H

/* In the template: learns from the events that there have been, when it is time. */
void surus_boot_learn(void);

#endif
