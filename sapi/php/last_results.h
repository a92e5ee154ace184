/* Resets what PHP's functions keep of the last call (`worker`). */
#ifndef SURUS_PHP_LAST_RESULTS_H
#define SURUS_PHP_LAST_RESULTS_H

/* At the end of the boot. */
void surus_last_results_save(void);
/* At the end of a request, before the default stream context is restored. */
void surus_last_results_reset(void);

#endif
