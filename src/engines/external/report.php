<?php
// Reports PHP's version and settings in the format of sapi/php/startup_report.c.
namespace Surus\External;

header('Content-Type: text/plain');
$restricted = ini_get('opcache.restrict_api');
$status = function_exists('opcache_get_status') && !$restricted ? opcache_get_status(false) : null;
$is_on = $status['opcache_enabled'] ?? ($restricted && ini_get('opcache.enable'));
$lines = [
	'php' => PHP_VERSION,
	'php_running' => PHP_VERSION,
	'ini_file' => (string) php_ini_loaded_file(),
	'ini_scanned' => str_replace("\n", '', (string) php_ini_scanned_files()),
	'opcache' => $is_on ? 'on' : (extension_loaded('Zend OPcache') ? 'off' : 'missing'),
	'extensions' => implode(',', get_loaded_extensions()).',',
];
foreach ([
	'post_max_size', 'upload_max_filesize', 'memory_limit', 'max_execution_time', 'max_input_time',
	'display_errors', 'upload_tmp_dir', 'open_basedir', 'opcache.preload',
	'opcache.jit_buffer_size', 'opcache.validate_timestamps', 'extension_dir',
	'user_ini.filename', 'auto_prepend_file', 'auto_append_file',
	'error_reporting', 'date.timezone',
] as $name) {
	$lines[$name] = (string) ini_get($name);
}
// Ends a line that an auto_prepend_file has begun.
echo "\n";
foreach ($lines as $name => $value) {
	echo $name, '=', $value, "\n";
}
