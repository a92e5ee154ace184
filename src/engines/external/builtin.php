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
	$basic = array_intersect_key(
		$_SERVER,
		['PHP_AUTH_USER' => 0, 'PHP_AUTH_PW' => 0, 'PHP_AUTH_DIGEST' => 0]
	);
	$variables = [];
	$file = __DIR__.'/variables.'.(int) $_SERVER['HTTP_SURUS_VARIABLES'];
	foreach (explode("\0", file_get_contents($file), -1) as $pair) {
		[$name, $value] = explode('=', $pair, 2);
		$variables[$name] = $value;
		// Make getenv() work as in php-fpm and php-cgi; PHP restores the environment after the
		// request. A php.ini may disable putenv().
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
	// The development server reads no .user.ini. Options that only an ini file can set do not
	// apply.
	define('SURUS_AUTO_FILES', (static function (): array {
		$settings = [];
		// As php-fpm, keeps the lines before a syntax error, and says so in the log.
		$read = static function (string $file): array {
			$found = @parse_ini_file($file);
			$lines = $found === false ? explode("\n", (string) @file_get_contents($file)) : [];
			$said = trim(error_get_last()['message'] ?? '');
			if ($found === false) {
				file_put_contents('php://stderr', "PHP:  $said\n");
			}
			while ($found === false) {
				// The message ends with the number of the line, or of the next one.
				$line = (int) substr((string) strrchr($said, ' '), 1);
				$lines = array_slice($lines, 0, max(0, min($line, count($lines)) - 1));
				$found = @parse_ini_string(implode("\n", $lines));
				$said = trim(error_get_last()['message'] ?? '');
			}
			return $found;
		};
		$name = ini_get('user_ini.filename');
		$root = rtrim($_SERVER['DOCUMENT_ROOT'] ?? '', '/');
		$below = dirname($_SERVER['SCRIPT_FILENAME']);
		$directories = [$below];
		while ($root !== '' && $below !== $root && str_starts_with("$below/", "$root/")) {
			array_unshift($directories, $below = dirname($below));
		}
		foreach ($name === '' ? [] : $directories as $directory) {
			// The file may lie outside open_basedir.
			if (@is_file("$directory/$name")) {
				$settings = array_replace($settings, $read("$directory/$name"));
			}
		}
		error_clear_last();
		$settings = array_filter($settings, 'is_scalar');
		// A php.ini may disable ini_set().
		foreach (function_exists('ini_set') ? $settings : [] as $setting => $value) {
			@ini_set($setting, $value);
		}
		$files = [];
		foreach (['auto_prepend_file', 'auto_append_file'] as $setting) {
			$file = (string) ($settings[$setting] ?? ini_get($setting));
			$files[] = strtolower($file) === 'none' ? '' : $file;
			// Before PHP 8.4 the server applies these settings only without a router. From 8.4 on,
			// it includes those of php.ini by itself.
			$files[] = PHP_VERSION_ID < 80400 || $file !== ini_get($setting);
		}
		return $files;
	})());
	SURUS_AUTO_FILES[0] === '' or !SURUS_AUTO_FILES[1] or require_once SURUS_AUTO_FILES[0];
	require $_SERVER['SCRIPT_FILENAME'];
	SURUS_AUTO_FILES[2] === '' or !SURUS_AUTO_FILES[3] or require SURUS_AUTO_FILES[2];
}
