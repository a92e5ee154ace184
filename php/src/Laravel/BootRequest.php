<?php

namespace Surus\Laravel;

use Illuminate\Container\Container;
use Illuminate\Foundation\Application;
use Illuminate\Http\Request;
use Surus\Retained;

/**
 * Takes the empty request of the boot away from what it was injected into: a service that a
 * provider makes while it boots would answer every visitor from it.
 */
final class BootRequest
{
    /** @param \Closure(string): void $log */
    public static function release(Application $app, Request $request, Retained $retained, \Closure $log): void
    {
        $instances = \Closure::bind(static fn (Container $app) => $app->instances, null, Container::class)($app);
        foreach ($instances as $name => $instance) {
            if (\is_object($instance)
                && Source::isApplication($app, new \ReflectionObject($instance))
                && \in_array($request, get_mangled_object_vars($instance), true)) {
                // The first request that needs it makes it, with the request of its own.
                $app->forgetInstance($name);
            }
        }
        unset($instances, $instance);
        if ($holder = $retained->holder($request, true)) {
            $log(sprintf(
                'surus: %s keeps the empty request of the boot, and will answer visitors from it. Have it ask for the '
                .'request when it needs one: request() or app("request")',
                $holder,
            ));
        }
    }
}
