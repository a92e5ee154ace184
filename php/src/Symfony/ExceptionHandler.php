<?php

namespace Surus\Symfony;

use Symfony\Component\ErrorHandler\ErrorHandler;

/**
 * Resets how Symfony's error handler treats uncaught exceptions. A kernel's first request sets it
 * permanently, so later visitors would get the error page of that request.
 */
final class ExceptionHandler
{
    private mixed $handler = null;

    public function __construct()
    {
        $errors = self::errors();
        $this->handler = $errors?->setExceptionHandler(null);
        $errors?->setExceptionHandler($this->handler);
    }

    public function restore(): void
    {
        self::errors()?->setExceptionHandler($this->handler);
    }

    private static function errors(): ?ErrorHandler
    {
        $handler = set_exception_handler(null);
        restore_exception_handler();

        return \is_array($handler) && $handler[0] instanceof ErrorHandler ? $handler[0] : null;
    }
}
