/* Reads and sets the mode of mysqli_report(), which has no function that returns it. */
#include "php/mysqli_mode.h"

static zend_long get(void)
{
	zend_class_entry *class = zend_hash_str_find_ptr(EG(class_table), ZEND_STRL("mysqli_driver"));
	zval driver, value;

	if (!class || object_init_ex(&driver, class) != SUCCESS) {
		return 0;
	}
	zend_long mode = zval_get_long(zend_read_property(class, Z_OBJ(driver),
	                               ZEND_STRL("report_mode"), true, &value));
	zval_ptr_dtor(&driver);
	return mode;
}

zend_long surus_mysqli_mode(const zend_long *to)
{
	/* Not by the property: writing it needs a frame, which the end of a request has not. */
	zend_function *report = to ? zend_hash_str_find_ptr(CG(function_table),
	                                                    ZEND_STRL("mysqli_report")) : NULL;
	zval mode, result;

	if (!report) {
		return get();
	}
	ZVAL_LONG(&mode, *to);
	zend_call_known_function(report, NULL, NULL, &result, 1, &mode, NULL);
	return *to;
}
