<?php

namespace Surus\Laravel;

use Illuminate\Container\Container;
use Illuminate\Foundation\Application;
use Illuminate\Http\Request;
use Surus\Retained;

/**
 * Removes the boot's empty request from the services that got it injected; a service made during
 * the boot would otherwise use it for every visitor.
 */
final class BootRequest
{
    /** @param \Closure(string): void $log */
    public static function release(
        Application $app,
        Request $request,
        Retained $retained,
        \Closure $log
    ): void
    {
        $instances = \Closure::bind(
            static fn (Container $app) => $app->instances,
            null,
            Container::class
        )($app);
        foreach ($instances as $name => $instance) {
            if (\is_object($instance)
                && Source::isApplication($app, new \ReflectionObject($instance))
                && \in_array($request, get_mangled_object_vars($instance), true)) {
                // The first request that needs the service creates it with its own request.
                $app->forgetInstance($name);
            }
        }
        unset($instances, $instance);
        if ($holder = $retained->holder($request, true)) {
            $log(sprintf(
                'surus: %s keeps the empty request of the boot and will serve visitors with it; fetch the '
                .'request when it is needed: request() or app("request")',
                $holder,
            ));
        }
    }
}
