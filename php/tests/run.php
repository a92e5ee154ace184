<?php

// Runs the tests of this package: php php/tests/run.php. The other files here return tests by name.

spl_autoload_register(
    static fn (string $class) => is_file(
        $file = dirname(__DIR__).'/src/'.strtr(substr($class, 6), '\\', '/').'.php'
    )
        && require $file
);
set_error_handler(static function (int $level, string $message, string $file, int $line): never {
    throw new ErrorException($message, 0, $level, $file, $line);
});

function same(mixed $expected, mixed $actual): void
{
    if ($expected !== $actual) {
        throw new RuntimeException(
            sprintf(
                "expected %s\n     got %s",
                var_export($expected, true),
                var_export($actual, true)
            )
        );
    }
}

/** @param class-string<Throwable> $class */
function throws(string $class, string $message, callable $do): void
{
    try {
        $do();
    } catch (Throwable $thrown) {
        if (!$thrown instanceof $class || !str_contains($thrown->getMessage(), $message)) {
            throw new RuntimeException("expected $class with \"$message\", got $thrown");
        }

        return;
    }
    throw new RuntimeException("expected $class, and nothing was thrown");
}

$failed = 0;
foreach (glob(__DIR__.'/*.php') as $file) {
    foreach (__FILE__ === $file ? [] : require $file as $name => $test) {
        try {
            $test();
            echo "ok      $name\n";
        } catch (Throwable $thrown) {
            ++$failed;
            echo "FAILED  $name\n$thrown\n";
        }
    }
}
exit($failed ? 1 : 0);
