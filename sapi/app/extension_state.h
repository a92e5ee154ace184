/* Resets what extensions keep of the last call for the whole process, outside of variables and
 * objects. */
#ifndef SURUS_APP_EXTENSION_STATE_H
#define SURUS_APP_EXTENSION_STATE_H

void surus_extension_state_save(void);

/* Returns what cannot be reset; NULL: nothing. */
const char *surus_extension_state_restore(void);

void surus_extension_state_free(void);

#endif
