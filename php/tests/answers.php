<?php

// Tests of the results and errors that go back to Lambda.

use Surus\Lambda\Answer;
use Surus\Lambda\Console;
use Surus\Lambda\Context;
use Surus\Lambda\Handler;

final class Zählt3 extends Exception {}
final class E extends Exception {}

$load = static function (string $code): Handler {
    $file = tempnam(sys_get_temp_dir(), 'handler');
    try {
        file_put_contents($file, $code);

        return Handler::load($file);
    } finally {
        unlink($file);
    }
};

return [
    'error names are valid for Lambda' => static function () {
        $anonymous = [new class extends Exception {}, new class extends LogicException {}];
        foreach (
            [
                [new Zählt3(), 'Zhlt'],
                [new E(), 'Exception'],
                [$anonymous[0], 'Exception'],
                [$anonymous[1], 'LogicException'],
                [new Surus\Lambda\Event\NotThisEvent('x', 1), 'NotThisEvent']
            ] as [$thrown, $name]
        ) {
            $type = Answer::error($thrown)->headers['Lambda-Runtime-Function-Error-Type'];
            same("Function.$name", $type);
            same(1, preg_match('/^(Runtime|Function)\.[A-Z][a-zA-Z]+$/', $type));
        }
    },
    'an error contains the exception and its cause' => static function () {
        $answer = Answer::error(
            new RuntimeException("not UTF-8: \xff", 0, new LogicException('before'))
        );
        $body = json_decode($answer->body, true, flags: JSON_THROW_ON_ERROR);
        same(
            [500, 'RuntimeException', "not UTF-8: \u{fffd}"],
            [$answer->status, $body['errorType'], $body['errorMessage']]
        );
        same(__FILE__.':'.(__LINE__ - 7), $body['stackTrace'][0]);
        same(true, in_array('caused by LogicException: before', $body['stackTrace'], true));
    },
    'all types of handlers are accepted' => static function () use ($load) {
        $context = new Context('id', 5, 'arn', 'trace');
        same(
            [1, 'id'],
            $load(
                '<?php return fn (array $event, Surus\Lambda\Context $context) => [$event[0], $context->awsRequestId];'
            )->handle([1], $context)
        );
        same(1, $load('<?php return fn ($event) => $event;')->handle(1, $context));
        same('none', $load('<?php return fn () => "none";')->handle(1, $context));
        same(
            'object',
            $load(
                '<?php return new class { function handle($event, $context) { return $event; } };'
            )->handle('object', $context)
        );
        same(
            'invoked',
            $load(
                '<?php return new class { function __invoke($event) { return $event; } };'
            )->handle('invoked', $context)
        );
        same(3, $load('<?php return strlen(...);')->handle('abc', $context));
        same(
            1,
            $load(
                '<?php return fn (Surus\Lambda\Event\Sqs $event) => count($event);'
            )->handle(['Records' => [['eventSource' => 'aws:sqs']]], $context)
        );
    },
    'a Bref handler gets Bref\'s context' => static function () use ($load) {
        eval(
            'namespace Bref\Context; final class Context { function __construct(public string $a, public int $b, public string $c, public string $d) {} }'
        );
        $handler = $load(
            '<?php return new class { function handle(mixed $event, Bref\Context\Context $context): mixed { return (array) $context; } };'
        );
        same(
            ['a' => 'id', 'b' => 5, 'c' => 'arn', 'd' => 'trace'],
            $handler->handle([], new Context('id', 5, 'arn', 'trace'))
        );
    },
    'a file without a handler is an error' => static function () use ($load) {
        throws(UnexpectedValueException::class, 'returned nothing', static fn () => $load('<?php'));
        throws(
            UnexpectedValueException::class,
            'returned string',
            static fn () => $load('<?php return "strlen";')
        );
        throws(
            RuntimeException::class,
            '/no/such.php does not exist',
            static fn () => Handler::load('/no/such.php')
        );
        throws(
            RuntimeException::class,
            'no handler is configured',
            static fn () => Handler::load('')
        );
    },
    'a script runs one command per event' => static function () use ($load) {
        ini_set('error_log', '/dev/null');
        $script = tempnam(sys_get_temp_dir(), 'console');
        file_put_contents($script, '#!/usr/bin/env php
<?php echo json_encode(array_slice($argv, 1)); fwrite(STDERR, "!"); exit((int) ($argv[2] ?? 0));');
        $console = Console::script($script);
        $answer = $console->handle(
            'app:report --name="a \"b\" \\\\" \'$(id) c\' d\ e;f ""',
            new Context()
        );
        same(
            [
                'exitCode' => 0,
                'output' => '["app:report","--name=a \"b\" \\\\","$(id) c","d e;f",""]!'
            ],
            json_decode($answer->body, true)
        );
        $answer = $console->handle(['command' => 'app:fail 3'], new Context());
        $body = json_decode($answer->body, true);
        same(
            [500, 3, 'Function.CommandFailed'],
            [
                $answer->status,
                $body['exitCode'],
                $answer->headers['Lambda-Runtime-Function-Error-Type']
            ]
        );
        same('`app:fail 3` failed with exit code 3: ["app:fail","3"]!', $body['errorMessage']);
        throws(
            InvalidArgumentException::class,
            'runs commands',
            static fn () => $console->handle(['no' => 1], new Context())
        );
        same(
            '["x"]!',
            json_decode(Handler::load($script)->handle('x', new Context())->body, true)['output']
        );
        unlink($script);
    },
    'remaining time of a context' => static function () {
        same(null, (new Context())->remainingMs());
        same(0, (new Context('', 1))->remainingMs());
        same(
            true,
            (
                new Context('', (int) (microtime(true) * 1000) + 60000)
            )->getRemainingTimeInMillis() > 50000
        );
    },
];
