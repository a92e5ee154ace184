/* Detects what auto_prepend_file and auto_append_file do that works only once per process
 * (`worker`). */
#ifndef SURUS_APP_AUTO_ONCE_H
#define SURUS_APP_AUTO_ONCE_H

#include <stdbool.h>

struct _zend_op_array;

/* NULL: an exception says why. */
struct _zend_op_array *surus_auto_compile(const char *path);
void surus_auto_destroy(struct _zend_op_array *code);
/* Whether the files, each of which may be NULL, contain nothing of that kind. False: said on
 * stderr. */
bool surus_auto_once_check(const char *prepended, const char *appended);
/* Around the run of a file: records what it does. */
void surus_auto_once_begin(const char *path);
void surus_auto_once_end(void);
/* At the end of a request: undoes what can be undone. */
void surus_auto_once_undo(void);

#endif
