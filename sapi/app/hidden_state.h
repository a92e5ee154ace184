/* Finds objects and resources of the boot whose contents PHP does not show.
 * Such contents can be neither restored nor compared. */
#ifndef SURUS_APP_HIDDEN_STATE_H
#define SURUS_APP_HIDDEN_STATE_H

#include <stdbool.h>

#include <php.h>

enum surus_contents {
	SURUS_SHOWN, /* as properties, or to the garbage collector */
	SURUS_SHOWN_BY_CALLS, /* of key() or var_dump() */
	SURUS_HIDDEN,
};

/* Where an object's contents can be seen. */
enum surus_contents surus_object_contents(const zend_object *object);

/* Finds all that is hidden, and saves what resources show. */
void surus_hidden_state_save(void);

/* What is hidden, or has changed in a resource. NULL: nothing. */
const char *surus_hidden_state_find(void);

void surus_hidden_state_free(void);

#endif
