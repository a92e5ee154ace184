<?php
// The router of `php -S`: runs the requested script with the variables from Surus. It leaves no
// variable behind, because the script runs in the global scope.

if (!hash_equals(require __DIR__.'/key.php', $_SERVER['HTTP_SURUS_KEY'] ?? '')) {
	// The request comes from another user or program on this machine.
	http_response_code(403);
	exit;
}
if (!isset($_SERVER['HTTP_SURUS_VARIABLES'])) {
	// Surus asks this way whether the server is idle.
	exit;
}
$_SERVER = (static function (): array {
	$made = array_intersect_key($_SERVER, ['REQUEST_TIME' => 0, 'REQUEST_TIME_FLOAT' => 0]);
	$basic = array_intersect_key($_SERVER, ['PHP_AUTH_USER' => 0, 'PHP_AUTH_PW' => 0, 'PHP_AUTH_DIGEST' => 0]);
	$variables = [];
	$file = __DIR__.'/variables.'.(int) $_SERVER['HTTP_SURUS_VARIABLES'];
	foreach (explode("\0", file_get_contents($file), -1) as $pair) {
		[$name, $value] = explode('=', $pair, 2);
		$variables[$name] = $value;
		// Make getenv() work as in php-fpm and php-cgi; PHP restores the environment after the request. A
		// php.ini may disable putenv().
		if (function_exists('putenv')) {
			putenv($pair);
		}
	}
	$variables['PHP_SELF'] = $variables['SCRIPT_NAME'].($variables['PATH_INFO'] ?? '');
	return $variables + $basic + $made;
})();
if (!is_file($_SERVER['SCRIPT_FILENAME'])) {
	http_response_code(404);
	echo "File not found.\n";
} elseif (!is_readable($_SERVER['SCRIPT_FILENAME'])) {
	http_response_code(403);
	echo "Access denied.\n";
} else {
	chdir(dirname($_SERVER['SCRIPT_FILENAME']));
	// Before PHP 8.4 the server applies these settings only without a router. From 8.4 on, it has
	// already included the first file.
	in_array(strtolower(ini_get('auto_prepend_file')), ['', 'none'], true) or require_once ini_get('auto_prepend_file');
	require $_SERVER['SCRIPT_FILENAME'];
	PHP_VERSION_ID >= 80400 or in_array(strtolower(ini_get('auto_append_file')), ['', 'none'], true) or require ini_get('auto_append_file');
}
