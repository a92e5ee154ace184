/* Defines the functions and ini settings that php-fpm provides, under php-fpm's module name. */
#include "app/functions.h"

#include <string.h>

#include <php.h>
#include <SAPI.h>
#include <php_ini.h>
#include <php_main.h>
#include <php_output.h>
#include <ext/standard/head.h>
#include <ext/standard/info.h>

#include "app/boot_values.h"
#include "app/serve.h"
#include "app/warmup.h"
#include "app/warmup_answer.h"
#include "app/warmup_report.h"
#include "base/clock_shift.h"
#include "base/process_state.h"
#include "base/scoreboard.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "base/startup_trace.h"
#include "ipc/outbox.h"
#include "ipc/request_decode.h"
#include "php/boot_files.h"
#include "php/code_wrapper.h"
#include "php/form_parser.h"
#include "php/frankenphp.h"
#include "php/request_body.h"
#include "php/sapi_module.h"
#include "php/server_variables.h"

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_fastcgi_finish_request, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_apache_request_headers, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_headers_send, 0, 0, IS_LONG, 0)

	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, status, IS_LONG, 0, "200")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_surus_renew_constant, 0, 2, _IS_BOOL, 0)

	ZEND_ARG_TYPE_INFO(0, name, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO(0, value, IS_DOUBLE, 0)
ZEND_END_ARG_INFO()

/* surus_renew_constant(string $name, float $value): bool. Gives a constant in which the boot has
 * kept a time, as a float or a whole number, the time of the request. False: there is none. */
static PHP_FUNCTION(surus_renew_constant)
{
	zend_string *name;
	zend_constant *constant;
	double value;

	ZEND_PARSE_PARAMETERS_START(2, 2)
		Z_PARAM_STR(name)
		Z_PARAM_DOUBLE(value)
	ZEND_PARSE_PARAMETERS_END();
	constant = zend_hash_find_ptr(EG(zend_constants), name);
	if (!constant || ZEND_CONSTANT_MODULE_NUMBER(constant) != PHP_USER_CONSTANT) {
		RETURN_FALSE;
	}
	if (Z_TYPE(constant->value) == IS_LONG) {
		Z_LVAL(constant->value) = zend_dval_to_lval(value);
	} else if (Z_TYPE(constant->value) == IS_DOUBLE) {
		Z_DVAL(constant->value) = value;
	} else {
		RETURN_FALSE;
	}
	RETURN_TRUE;
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_surus_boot_outdated, 0, 1, IS_VOID, 0)

	ZEND_ARG_TYPE_INFO(0, what, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, state, IS_STRING, 0, "''")
ZEND_END_ARG_INFO()

/* surus_boot_outdated(string $what, string $state = ''): void. Says that something has changed on
 * which the boot depends and which is not a file, such as an option in a database. Surus boots the
 * application again in the background. Nothing happens on `classic`. */
static PHP_FUNCTION(surus_boot_outdated)
{
	char *what, *state = "";
	size_t what_len, state_len = 0;

	ZEND_PARSE_PARAMETERS_START(1, 2)
		Z_PARAM_STRING(what, what_len)
		Z_PARAM_OPTIONAL
		Z_PARAM_STRING(state, state_len)
	ZEND_PARSE_PARAMETERS_END();
	surus_boot_files_report(what, what_len, state, state_len);
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_surus_save_boot, 0, 0, IS_VOID, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_surus_restore_boot, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

/* surus_save_boot(): void. For a boot script, right before it serves: saves all variables, objects
 * and settings for surus_restore_boot(), if there will be warm-ups. */
static PHP_FUNCTION(surus_save_boot)
{
	ZEND_PARSE_PARAMETERS_NONE();
	if (surus_settings.warms_up && !surus_serve_called()) {
		surus_boot_values_save();
	}
}

/* surus_restore_boot(): bool. For a boot script, at the end of a warm-up. False: nothing was
 * saved. */
static PHP_FUNCTION(surus_restore_boot)
{
	ZEND_PARSE_PARAMETERS_NONE();
	RETURN_BOOL(surus_boot_values_restore());
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_surus_shift_clock, 0, 1, IS_VOID, 0)

	ZEND_ARG_TYPE_INFO(0, seconds, IS_LONG, 0)
ZEND_END_ARG_INFO()

/* surus_shift_clock(int $seconds): void. For a boot script, in a warm-up: adds seconds to the time
 * of day that PHP code sees, until the warm-up ends. */
static PHP_FUNCTION(surus_shift_clock)
{
	zend_long seconds;

	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_LONG(seconds)
	ZEND_PARSE_PARAMETERS_END();
	if (surus_warmup_runs()) {
		surus_clock_shift((long)seconds);
	}
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_surus_report_created, 0, 1, _IS_BOOL, 0)

	ZEND_ARG_TYPE_INFO(0, what, IS_STRING, 0)
ZEND_END_ARG_INFO()

/* surus_report_created(string $what): bool. For a boot script, in a warm-up: what `surus status`
 * shows of the objects that the script has created ahead. False: another process logs it. */
static PHP_FUNCTION(surus_report_created)
{
	char *what;
	size_t len;

	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_STRING(what, len)
	ZEND_PARSE_PARAMETERS_END();
	if (surus_warmup_runs()) {
		surus_warmup_report_created(what, len);
		RETURN_BOOL(surus_warmup_is_first());
	}
	RETURN_TRUE;
}

/* fastcgi_finish_request(): bool. Ends the response; PHP continues. */
static PHP_FUNCTION(fastcgi_finish_request)
{
	ZEND_PARSE_PARAMETERS_NONE();
	if (!surus_request->id || surus_process->state == SURUS_FINISHING) {
		RETURN_FALSE;
	}
	php_output_end_all();
	php_header();
	surus_outbox_finish();
	surus_scoreboard_set_state(SURUS_FINISHING);
	RETURN_TRUE;
}

/* apache_request_headers(): array, also known as getallheaders(). */
static PHP_FUNCTION(apache_request_headers)
{
	ZEND_PARSE_PARAMETERS_NONE();
	array_init(return_value);
	for (uint32_t i = 0; i < surus_request->var_count && surus_request->id; i++) {
		struct surus_var *var = &surus_request->vars[i];
		char name[256];

		if (var->name_len < sizeof(name)) {
			memcpy(name, var->name, var->name_len);
			name[var->name_len] = '\0';
			sapi_add_request_header(name, var->name_len, var->value, var->value_len, return_value);
		}
	}
}

/* headers_send(int $status = 200): int. As FrankenPHP: sends the headers now. 103 sends them as
 * early hints, and the script continues to its response. Other 1xx send nothing. Returns the
 * status. */
static PHP_FUNCTION(headers_send)
{
	zend_long status = 200;

	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(status)
	ZEND_PARSE_PARAMETERS_END();
	if (status < 100 || status > 599) {
		zend_argument_value_error(1, "must be a status from 100 to 599");
		RETURN_THROWS();
	}
	surus_php_headers_send((int)status);
	RETURN_LONG(status);
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_surus_form, 0, 0, IS_ARRAY, 1)
ZEND_END_ARG_INFO()

/* surus_form(): ?array. Returns the content that $_POST and $_FILES would have if the method were
 * POST, for a multipart body that has not been read. */
static PHP_FUNCTION(surus_form)
{
	zval fields, files;

	ZEND_PARSE_PARAMETERS_NONE();
	if (!surus_request->id || !surus_form_read(&fields, &files)) {
		RETURN_NULL();
	}
	array_init_size(return_value, 2);
	add_next_index_zval(return_value, &fields);
	add_next_index_zval(return_value, &files);
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_surus_exit_status, 0, 0, IS_LONG, 0)
ZEND_END_ARG_INFO()

/* surus_exit_status(): int. For a shutdown function: the status with which a command-line PHP would
 * exit, that of exit(), or 255 after a fatal error. */
static PHP_FUNCTION(surus_exit_status)
{
	ZEND_PARSE_PARAMETERS_NONE();
	RETURN_LONG(EG(exit_status) & 255);
}

static const zend_function_entry functions[] = {
	PHP_FE(surus_renew_constant, arginfo_surus_renew_constant)
	PHP_FE(surus_boot_outdated, arginfo_surus_boot_outdated)
	PHP_FE(surus_save_boot, arginfo_surus_save_boot)
	PHP_FE(surus_restore_boot, arginfo_surus_restore_boot)
	PHP_FE(surus_shift_clock, arginfo_surus_shift_clock)
	PHP_FE(surus_report_created, arginfo_surus_report_created)
	PHP_FE(fastcgi_finish_request, arginfo_fastcgi_finish_request)
	PHP_FE(apache_request_headers, arginfo_apache_request_headers)
	PHP_FALIAS(getallheaders, apache_request_headers, arginfo_apache_request_headers)
	PHP_FALIAS(frankenphp_finish_request, fastcgi_finish_request, arginfo_fastcgi_finish_request)
	PHP_FALIAS(frankenphp_request_headers, apache_request_headers, arginfo_apache_request_headers)
	PHP_FE(headers_send, arginfo_headers_send)
	PHP_FE(surus_form, arginfo_surus_form)
	PHP_FE(surus_exit_status, arginfo_surus_exit_status)
	PHP_FE_END
};

/* Applications read these, so they have php-fpm's defaults. The front end decides what they would
 * control. */
PHP_INI_BEGIN()

	PHP_INI_ENTRY("cgi.rfc2616_headers", "0", PHP_INI_ALL, NULL)
	PHP_INI_ENTRY("cgi.nph", "0", PHP_INI_ALL, NULL)
#if PHP_VERSION_ID < 80500
	PHP_INI_ENTRY("cgi.force_redirect", "1", PHP_INI_SYSTEM, NULL)
	PHP_INI_ENTRY("cgi.redirect_status_env", NULL, PHP_INI_SYSTEM, NULL)
#else
	PHP_INI_ENTRY("fastcgi.script_path_encoded", "1", PHP_INI_SYSTEM, NULL)
#endif
	PHP_INI_ENTRY("cgi.fix_pathinfo", "1", PHP_INI_SYSTEM, NULL)
	PHP_INI_ENTRY("cgi.discard_path", "0", PHP_INI_SYSTEM, NULL)
	PHP_INI_ENTRY("fastcgi.logging", "1", PHP_INI_SYSTEM, NULL)
	PHP_INI_ENTRY("fastcgi.error_header", NULL, PHP_INI_SYSTEM, NULL)
	PHP_INI_ENTRY("fpm.config", NULL, PHP_INI_SYSTEM, NULL)
PHP_INI_END()

static PHP_MINIT_FUNCTION(surus)
{
	REGISTER_INI_ENTRIES();
	surus_startup_trace_extensions();
	surus_variables_intern();
	return surus_serve_register(type) && surus_frankenphp_register(type) &&
	       surus_code_wrapper_install() ? SUCCESS : FAILURE;
}

static PHP_MSHUTDOWN_FUNCTION(surus)
{
	(void)type;
	UNREGISTER_INI_ENTRIES();
	return SUCCESS;
}

static PHP_RSHUTDOWN_FUNCTION(surus)
{
	(void)type;
	surus_body_leave_rest();
	return SUCCESS;
}

static PHP_MINFO_FUNCTION(surus)
{
	php_info_print_table_start();
	php_info_print_table_row(2, "Surus", SURUS_VERSION);
	php_info_print_table_end();
	DISPLAY_INI_ENTRIES();
}

zend_module_entry surus_module_entry = {
	STANDARD_MODULE_HEADER,
	"cgi-fcgi",
	functions,
	PHP_MINIT(surus),
	PHP_MSHUTDOWN(surus),
	NULL,
	PHP_RSHUTDOWN(surus),
	PHP_MINFO(surus),
	SURUS_VERSION,
	STANDARD_MODULE_PROPERTIES,
};
