<?php

namespace Surus\Laravel;

use Illuminate\Contracts\Http\Kernel;
use Illuminate\Foundation\Application;
use Illuminate\Http\Request;
use Illuminate\Session\Middleware\StartSession;
use Illuminate\Support\Facades\Facade;
use Surus\Engine;
use Surus\Lambda\Hook;

/** Bootstraps an application, providers and all, and has its kernel handle every request that comes. */
final class Runner
{
    /** What remembers a visitor. Memory that is put back forgets by itself, but not what a warm-up has left for all. */
    private const OF_THE_VISITOR = ['session', 'session.store', 'auth', 'auth.driver', 'cookie', StartSession::class];

    public static function serve(Application $app): void
    {
        $kernel = $app->make(Kernel::class);
        // Providers may ask for it while they boot, as those of a command line find one that Laravel makes for them.
        $app->instance('request', Request::create('http://localhost'));
        $kernel->bootstrap();
        // Needed by every request: routes, and what compiles or finds views.
        $app->make('router');
        $app->make('view');

        surus_serve(static function () use ($app, $kernel): void {
            Hook::begin();
            $response = $kernel->handle($request = Request::capture());
            $response->send();
            $kernel->terminate($request, $response);
            self::forget($app);
        });
    }

    private static function forget(Application $app): void
    {
        if (method_exists($app, 'forgetScopedInstances')) {
            $app->forgetScopedInstances();
        }
        foreach (self::OF_THE_VISITOR as $service) {
            $app->forgetInstance($service);
        }
        Facade::clearResolvedInstances();
        if (Engine::forgets()) {
            self::disconnect($app);
        }
    }

    /** No process but this one knows these connections, and after a warm-up others would share them. */
    private static function disconnect(Application $app): void
    {
        if ($app->resolved('db')) {
            foreach (array_keys($app['db']->getConnections()) as $name) {
                $app['db']->purge($name);
            }
        }
        if ($app->resolved('redis')) {
            foreach (array_keys($app['redis']->connections() ?? []) as $name) {
                $app['redis']->purge($name);
            }
        }
    }
}
