<?php

// Measures the CPU time of Surus\Api per request, above a bare echo json_encode(), and prints it as
// the table of docs/guides/api.md. `make api-cost` runs it with the revision of this repository.

use Surus\Api\App;
use Surus\Process;

spl_autoload_register(
    static fn (string $class) => require dirname(__DIR__)
        .'/src/'
        .strtr(substr($class, 6), '\\', '/')
        .'.php'
);

final class NewUser
{
    public function __construct(public string $name, public int $age, public ?string $mail = null)
    {
    }
}

/** Stands in for php://input, which is empty in the CLI: the body of a POST. */
final class Input
{
    public const BODY = '{"name":"Gisgo","age":30}';

    public mixed $context = null;
    private int $at = 0;

    public function stream_open(string $path): bool
    {
        return 'php://input' === $path;
    }

    public function stream_read(int $length): string
    {
        $part = substr(self::BODY, $this->at, $length);
        $this->at += strlen($part);

        return $part;
    }

    public function stream_eof(): bool
    {
        return $this->at >= strlen(self::BODY);
    }

    /** @return array<string, int> */
    public function stream_stat(): array
    {
        return [];
    }
}

const ROUNDS = 25;
const REQUESTS = 1000;

$app = new App(false);
$app->get('/', fn () => ['message' => 'Hello World!']);
for ($number = 0; $number < 100; ++$number) {
    $app->get("/static$number", fn () => ['message' => 'Hello World!']);
    $app->get("/users$number/{id:int}", fn (int $id) => ['id' => $id]);
}
$app->get(
    '/middleware',
    fn () => ['message' => 'Hello World!'],
    fn ($request, $next) => $next($request),
    fn ($request, $next) => $next($request)
);
$app->post('/users', fn (NewUser $user) => ['name' => $user->name]);

// The work of run() for each request on `worker`, which also restores the process's settings.
$process = new Process();
$serve = (new ReflectionMethod($app, 'serving'))->invoke($app, $process);
$ask = static function (string $method, string $path, string $type = '') use ($serve): Closure {
    return static function () use ($serve, $method, $path, $type): void {
        $_SERVER['REQUEST_METHOD'] = $method;
        $_SERVER['REQUEST_URI'] = $path;
        $_SERVER['CONTENT_TYPE'] = $type;
        $serve();
    };
};
stream_wrapper_unregister('php');
stream_wrapper_register('php', Input::class);
$cases = [
    'bare echo json_encode()' => static function (): void {
        header('Content-Type: application/json');
        echo json_encode(['message' => 'Hello World!']);
    },
    'hello' => $ask('GET', '/'),
    '`int` parameter, last of 100 patterns' => $ask('GET', '/users99/17'),
    'two middlewares' => $ask('GET', '/middleware'),
    '404' => $ask('GET', '/none'),
    'body of a class with 3 parameters' => $ask('POST', '/users', 'application/json'),
];
$answers = [
    '{"message":"Hello World!"}',
    '{"message":"Hello World!"}',
    '{"id":17}',
    '{"message":"Hello World!"}',
    '{"type":"about:blank","title":"Not Found","status":404}',
    '{"name":"Gisgo"}',
];

$cpu = static function (): float {
    $usage = getrusage();

    return $usage['ru_utime.tv_sec'] * 1e6 + $usage[
        'ru_utime.tv_usec'
    ] + $usage['ru_stime.tv_sec'] * 1e6 + $usage[
        'ru_stime.tv_usec'
    ];
};
ob_start();
// An error may be cheaper than the answer that a row is named after.
foreach (array_combine(array_keys($cases), $answers) as $name => $answer) {
    $cases[$name]();
    $got = ob_get_contents();
    ob_clean();
    if ($answer !== $got) {
        throw new LogicException("$name: expected $answer, got $got");
    }
}
$best = array_fill_keys(array_keys($cases), INF);
// Interleaved, and the best of all rounds: other processes only ever add time.
for ($round = 0; $round < ROUNDS; ++$round) {
    foreach ($cases as $name => $case) {
        $begin = $cpu();
        for ($request = 0; $request < REQUESTS; ++$request) {
            $case();
            ob_clean();
        }
        $best[$name] = min($best[$name], ($cpu() - $begin) / REQUESTS);
    }
}
ob_end_clean();
$bare = reset($best);
unset($best[key($best)]);
$cpu = preg_match('/^model name\s*: (.*)$/m', @file_get_contents('/proc/cpuinfo') ?: '', $found);
printf(
    "%s, revision %s, %s, PHP %s, JIT %s. A bare echo json_encode() needs %.2f µs.\n\n",
    gmdate('Y-m-d'),
    $argv[1] ?? 'unknown',
    $cpu === 1 ? $found[1] : php_uname('m'),
    PHP_VERSION,
    (opcache_get_status(false)['jit']['on'] ?? false) ? 'on' : 'off',
    $bare
);
echo "| request | µs |\n|---|---|\n";
foreach ($best as $name => $time) {
    printf("| %s | %.1f |\n", $name, $time - $bare);
}
