<?php
// What PHP runs with, to see that all contestants have the same.
// Left out are those that are the server's own, and pcntl, which Debian compiles into libphp and not into php-fpm.
$extensions = array_diff(get_loaded_extensions(), ['cgi-fcgi', 'apache2handler', 'surus', 'pcntl']);
sort($extensions);
$ini = array_filter(ini_get_all(null, false), static fn (string $name): bool => (bool) preg_match(
    '/^(opcache\.|realpath_cache_|session\.|zend\.|memory_limit|max_execution_time|output_buffering|implicit_flush|variables_order|request_order|auto_|display_errors|html_errors|error_reporting|precision)/',
    $name,
), ARRAY_FILTER_USE_KEY);
// Surus sets it where a script is booted; it decides when a restart of OPcache that is being waited for is forced, and nothing is restarted here.
unset($ini['opcache.force_restart_timeout']);
ksort($ini);
header('Content-Type: application/json');
echo json_encode([
    'php' => PHP_VERSION,
    'opcache' => opcache_get_status(false)['opcache_enabled'] ?? false,
    'user' => posix_getpwuid(posix_geteuid())['name'],
    'extensions' => $extensions,
    'ini' => $ini,
]);
