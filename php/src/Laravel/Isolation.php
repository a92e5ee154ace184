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
 * Restores a booted application to its state before a request: the same application object, with
 * the
 * state that it, its services and the static properties of Laravel and of the application had then.
 * What a request has resolved is dropped. Database connections stay open.
 */
final class Isolation
{
    /**
     * Most requests need these services, and they are cheap to restore, so they are created once.
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
            // Octane's in-memory cache must outlive requests.
            [RedisConnection::class, OctaneArrayStore::class, OctaneStore::class],
            // An application has hundreds of routes, and a request uses one.
            [Route::class],
        );
        // The listener is part of the checkpoint and touches only routes.
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
     * Creates the services that most requests use, and a connection object for each database, which
     * connects later.
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

    /** Call this where a request begins. A request that ended by exit() has restored nothing. */
    public function begin(): void
    {
        if ($this->used) {
            $this->restore();
        }
        $this->used = true;
    }

    /** Call this where a request has ended. */
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
     * Watches the visitor's objects that are not restored: nothing may keep them after the request.
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
        // A request that changed the configuration may have connected to another database.
        $changed = $this->app->make('config')->get('database') !== $this->databases;
        foreach ($this->app->make('db')->getConnections() as $connection) {
            try {
                if ($connection->transactionLevel() > 0) {
                    $connection->rollBack(0);
                }
            } catch (\Throwable) {
                $changed = true; // the connection is lost; a new one has no transaction
            }
            if ($changed) {
                $connection->disconnect();
            }
        }
    }

    /** A missing configuration fails where a request needs it, as on any server. */
    private static function attempt(\Closure $make): void
    {
        try {
            $make();
        } catch (\Throwable) {
        }
    }
}
