<?php

namespace Surus\Boot;

/** Reports an exception that ends a boot, whatever the application does with uncaught ones. */
final class Failure
{
    /** @param \Closure(): void $boot */
    public static function reportOf(\Closure $boot): void
    {
        try {
            $boot();
        } catch (\Throwable $e) {
            self::report($e);
        }
    }

    public static function report(\Throwable $e): never
    {
        for ($text = '', $one = $e; $one; $one = $one->getPrevious()) {
            $text .= \sprintf(
                '%s%s: %s in %s:%d',
                $text ? '; caused by ' : '',
                $one::class,
                $one->getMessage(),
                $one->getFile(),
                $one->getLine()
            );
        }
        error_log("the application failed to boot: $text");
        exit(255);
    }
}
