/* Handles an uncaught exception as PHP does at the end of a script. */
#include "php/exceptions.h"

#include <php.h>
#include <zend_exceptions.h>

void surus_exception_end(void)
{
	zend_execute_data *const frame = EG(current_execute_data);

	if (EG(exception)) {
		EG(current_execute_data) = NULL;
		zend_exception_error(EG(exception), E_ERROR);
		EG(current_execute_data) = frame;
	}
}

/* As zend_user_exception_handler(), but with a frame: without one, PHP turns an exit() in the
 * handler into a fatal error. */
static void call_exception_handler(void)
{
	zend_object *exception = EG(exception);
	zval handler, argument, result;

	if (zend_is_unwind_exit(exception)) {
		return;
	}
	EG(exception) = NULL;
	ZVAL_COPY(&handler, &EG(user_exception_handler));
	ZVAL_OBJ(&argument, exception);
	ZVAL_UNDEF(&result);
	if (call_user_function(NULL, NULL, &handler, &result, 1, &argument) == SUCCESS) {
		zval_ptr_dtor(&result);
		OBJ_RELEASE(exception);
	} else {
		EG(exception) = exception;
	}
	zval_ptr_dtor(&handler);
}

bool surus_exceptions_handle(void)
{
	if (EG(exception) && Z_TYPE(EG(user_exception_handler)) != IS_UNDEF) {
		call_exception_handler();
	}
	bool goes_on = !EG(exception);
	surus_exception_end();
	return goes_on;
}
