<?php
// The router of `php -S`: runs the script that Surus has found for a request, with the variables that Surus has made of it.
// Nothing of it is left when the script begins: that runs in the global scope.

if (!hash_equals(require __DIR__.'/key.php', $_SERVER['HTTP_SURUS_KEY'] ?? '')) {
	// Somebody else on this machine.
	http_response_code(403);
	exit;
}
if (!isset($_SERVER['HTTP_SURUS_VARIABLES'])) {
	// Whoever asks so wants to know that this server has nothing else to do.
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
		// As php-fpm and php-cgi answer getenv(); PHP takes it back at the end of the request. A php.ini may disable it.
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
	// Before PHP 8.4 the server heeds these only where there is no router; since then it has included the first by now.
	in_array(strtolower(ini_get('auto_prepend_file')), ['', 'none'], true) or require_once ini_get('auto_prepend_file');
	require $_SERVER['SCRIPT_FILENAME'];
	PHP_VERSION_ID >= 80400 or in_array(strtolower(ini_get('auto_append_file')), ['', 'none'], true) or require ini_get('auto_append_file');
}
