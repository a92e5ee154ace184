<?php

namespace Surus\Boot;

use Symfony\Component\HttpFoundation\Request;

/**
 * Ends the boot where a front controller creates the request. The front controller's work until
 * then is the boot; it does not go on afterwards.
 */
final class RequestCapture
{
    /** @param \Closure(): void $serve serves all requests */
    public static function then(\Closure $serve): void
    {
        Request::setFactory(static function () use ($serve): never {
            Request::setFactory(null);
            Failure::reportOf($serve);
            exit;
        });
    }
}
