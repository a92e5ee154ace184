/* Keeps what the boot reports about its warm-ups: which it has left out and why, and what the boot
 * script has created ahead. */
#ifndef SURUS_APP_WARMUP_REPORT_H
#define SURUS_APP_WARMUP_REPORT_H

#include <stddef.h>

/* Why a warm-up is left out, as LeftOutReason in src/observe/status.rs reads it. */
#define SURUS_LEFT_OUT_STATUS "status" /* the page does not answer with 200 */
#define SURUS_LEFT_OUT_CHANGED "changed" /* it changes its own next answer */
#define SURUS_LEFT_OUT_STATE "state" /* it leaves what cannot be restored */
#define SURUS_LEFT_OUT_FAILED "failed" /* it ends in a fatal error, or would end the boot */
#define SURUS_LEFT_OUT_TEMPORARY "temporary" /* it fails for now, with 429 or 5xx */

/* Keeps a line of the boot script. */
void surus_warmup_report_created(const char *text, size_t len);
void surus_warmup_report_left_out(int number, const char *reason);
/* How many warm-ups the boot was asked for. */
void surus_warmup_report_count(int warm_ups);

/* The lines of the boot's report. */
const char *surus_warmup_report_lines(void);

#endif
