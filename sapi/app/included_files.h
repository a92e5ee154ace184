/* Forgets that warm-ups have included files, so that requests include them again. */
#ifndef SURUS_APP_INCLUDED_FILES_H
#define SURUS_APP_INCLUDED_FILES_H

void surus_included_files_save(void);

/* Forgets the files since then that have declared no class and no function. */
void surus_included_files_forget(void);

#endif
