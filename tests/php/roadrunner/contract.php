<?php
// Runs the PHP files of the engine contract in a RoadRunner worker. Command-line PHP has neither a
// request body nor headers, so the code gets functions of the same names.

namespace Surus\Tests\RoadRunner;

require __DIR__.'/frames.php';

final class Response
{
	public static Worker $worker;
	public static int $status;
	public static array $headers;
	public static bool $has_head;
	/** The buffer that collects the output. */
	public static int $level;

	public static function send(string $body, int $stream): void
	{
		self::$worker->respond(self::$status, $body, self::$headers, $stream, !self::$has_head);
		self::$has_head = true;
	}
}

function header(string $line, bool $replace = true): void
{
	[$name, $value] = explode(':', $line, 2) + [1 => ''];
	Response::$headers[$name] = [...($replace ? [] : Response::$headers[$name] ?? []), trim($value)];
}

function setcookie(string $name, string $value): void
{
	header("Set-Cookie: $name=$value", false);
}

function http_response_code(int $status): void
{
	Response::$status = $status;
}

function flush(): void
{
	while (ob_get_level() > Response::$level) {
		ob_end_flush();
	}
	ob_flush();
}

function serve(array $request): void
{
	$path = parse_url($request['uri'], PHP_URL_PATH);
	$file = dirname(__DIR__).$path;
	if (!is_readable($file)) {
		Response::$status = file_exists($file) ? 403 : 404;
		return;
	}
	parse_str($request['rawQuery'], $_GET);
	$_POST = $request['parsed'] ? json_decode($request['body'], true) : [];
	$_COOKIE = $request['cookies'];
	$_SERVER = ['REQUEST_METHOD' => $request['method']] + getenv();
	foreach ($request['headers'] as $name => $values) {
		$_SERVER['HTTP_'.strtoupper(strtr($name, '-', '_'))] = implode(', ', $values);
	}
	$functions = '/(?<![\w\\\\>:$])(header|setcookie|http_response_code|flush)\(/';
	$code = preg_replace($functions, '\\\\'.__NAMESPACE__.'\\\\$1(', file_get_contents($file));
	$input = tempnam(sys_get_temp_dir(), 'input');
	try {
		file_put_contents($input, $request['body']);
		run(strtr($code, ['php://input' => $input, '__DIR__' => var_export(dirname($file), true)]));
	} finally {
		unlink($input);
	}
}

function run(string $code): void
{
	(static fn () => eval('?>'.$code))();
}

Response::$worker = $worker = new Worker();
while ($request = $worker->next()) {
	[Response::$status, Response::$headers, Response::$has_head] = [200, [], false];
	ob_start(static function (string $text, int $phase): string {
		if ($text !== '' && !($phase & PHP_OUTPUT_HANDLER_FINAL)) {
			Response::send($text, STREAM);
		}

		return '';
	}, 8192);
	Response::$level = ob_get_level();
	try {
		serve($request);
	} catch (\Throwable $thrown) {
		Response::$status = 500;
		fwrite(STDERR, "$thrown\n");
	}
	while (ob_get_level() > Response::$level) {
		ob_end_flush();
	}
	$rest = ob_get_contents();
	ob_end_clean();
	Response::send($rest, 0);
	gc_collect_cycles();
}
