<?php

namespace Surus\Symfony;

use Symfony\Component\ErrorHandler\ErrorHandler;

/**
 * Puts back what Symfony's error handler does with exceptions that no kernel has caught. The first
 * request of a kernel sets it for good, and it would answer later visitors with the error page of
 * that request.
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
