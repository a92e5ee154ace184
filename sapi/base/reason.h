/* Formats why a system call failed. */
#ifndef SURUS_BASE_REASON_H
#define SURUS_BASE_REASON_H

/* Returns `what` and the text of errno. The text is overwritten by the next call. */
const char *surus_reason(const char *what);

#endif
