<?php

namespace Surus\Laravel;

use Illuminate\Database\Connection;
use Illuminate\Foundation\Application;
use Illuminate\Http\Request;
use Illuminate\Redis\Connections\Connection as RedisConnection;
use Illuminate\Redis\RedisManager;
use Illuminate\Routing\Events\RouteMatched;
use Illuminate\Routing\Route;
use Laravel\Octane\Cache\OctaneArrayStore;
use Laravel\Octane\Cache\OctaneStore;
use Surus\Checkpoint;
use Surus\Process;
use Surus\Retained;

/**
 * Puts a booted application back to its state before a request: the same application object, with
 * what it, its services and the static properties of Laravel and of the application held then. What
 * a request has resolved is dropped, connections to databases stay open.
 */
final class Isolation
{
    /**
     * Needed by most requests, and cheap to restore: they are made once, and not by every request.
     */
    private const SERVICES = [
        'auth', 'cache', 'cookie', 'db', 'encrypter', 'files', 'hash', 'redis', 'router', 'session', 'translator',
        'url', 'view', 'view.engine.resolver', 'blade.compiler',
    ];

    private readonly Checkpoint $checkpoint;
    private readonly Process $process;
    private readonly mixed $databases;
    private bool $used = false;

    public function __construct(private readonly Application $app)
    {
        $this->checkpoint = new Checkpoint(
            fn (\ReflectionClass $class) => str_starts_with($class->name, 'Illuminate\\')
                || str_starts_with($class->name, 'Carbon\\')
                || Source::isApplication($this->app, $class),
            [
                Connection::class => ['pdo', 'readPdo'],
                RedisManager::class => ['connections'],
            ],
            // Octane's cache in memory is there to outlive requests.
            [RedisConnection::class, OctaneArrayStore::class, OctaneStore::class],
            // An application has hundreds, of which a request uses one.
            [Route::class],
        );
        // The listener is part of what is noted, and touches nothing but routes.
        $app->make('events')->listen(
            RouteMatched::class,
            fn (RouteMatched $event) => $this->checkpoint->touch($event->route),
        );
        $this->checkpoint->note($app);
        $this->checkpoint->noteStatics();
        $this->process = new Process();
        $this->databases = $app->make('config')->get('database');
    }

    /**
     * Makes the services that most requests use, and a connection for each database, which is
     * opened later.
     */
    public static function prepare(Application $app): void
    {
        foreach (self::SERVICES as $service) {
            if ($app->bound($service)) {
                self::attempt(static fn () => $app->make($service));
            }
        }
        $databases = $app->bound('db') ? $app->make('config')->get('database.connections') ?? [] : [];
        foreach (array_keys($databases) as $name) {
            self::attempt(static fn () => $app->make('db')->connection($name));
        }
    }

    /** Where a request begins. One that has ended by exit() has restored nothing. */
    public function begin(): void
    {
        if ($this->used) {
            $this->restore();
        }
        $this->used = true;
    }

    /** Where a request has ended. */
    public function restore(): void
    {
        if ($this->app->resolved('db')) {
            $this->releaseDatabases();
        }
        $this->checkpoint->restore();
        $this->process->restore();
        $this->used = false;
    }

    /**
     * Has the visitor's objects watched that are not put back: nothing may keep them when the
     * request has ended.
     */
    public function watch(Retained $retained, Application $app, Request $request): void
    {
        foreach (Visitor::of($app, $request) as $object) {
            if (!$this->checkpoint->has($object)) {
                $retained->watch($object);
            }
        }
    }

    private function releaseDatabases(): void
    {
        // A request that has changed the configuration may have connected to another database.
        $changed = $this->app->make('config')->get('database') !== $this->databases;
        foreach ($this->app->make('db')->getConnections() as $connection) {
            try {
                if ($connection->transactionLevel() > 0) {
                    $connection->rollBack(0);
                }
            } catch (\Throwable) {
                $changed = true; // the connection is lost, and a new one begins without a transaction
            }
            if ($changed) {
                $connection->disconnect();
            }
        }
    }

    /** What is not configured fails where a request asks for it, as on any server. */
    private static function attempt(\Closure $make): void
    {
        try {
            $make();
        } catch (\Throwable) {
        }
    }
}
