/* Saves settings of the process that PHP code can change, and restores or compares them later. */
#ifndef SURUS_APP_SAVED_SETTINGS_H
#define SURUS_APP_SAVED_SETTINGS_H

void surus_saved_settings_save(void);

/* Restores ini settings and the handlers of errors and exceptions. Returns what else has changed
 * and stays: constants, the environment and others; NULL if nothing has. */
const char *surus_saved_settings_restore(void);

void surus_saved_settings_free(void);

#endif
