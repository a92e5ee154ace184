<?php

namespace Surus\Laravel;

use Illuminate\Database\Connection;
use Illuminate\Foundation\Application;
use Illuminate\Http\Request;
use Illuminate\Redis\Connections\Connection as RedisConnection;
use Illuminate\Redis\RedisManager;
use Illuminate\Routing\RouteCollection;
use Illuminate\Support\Once;
use Laravel\Octane\Cache\OctaneArrayStore;
use Laravel\Octane\Cache\OctaneStore;
use Surus\Checkpoint;
use Surus\Process;
use Surus\Retained;

/**
 * Restores a booted application to its state before a request. It stays the same application
 * object, with the state that its services and all static properties had then. Services that a
 * request has resolved are dropped. Database connections stay open.
 */
final class Isolation
{
    /**
     * Most requests need these services, and they are cheap to restore, so they are created once.
     */
    private const SERVICES = [
        'auth', 'cache', 'cookie', 'db', 'encrypter', 'files', 'hash', 'redis', 'router', 'session',
        'translator',
        'url', 'view', 'view.engine.resolver', 'blade.compiler',
    ];

    private readonly Checkpoint $checkpoint;
    private readonly Process $process;
    private readonly Databases $databases;
    private bool $unfinished = false;

    /** @var list<string> properties that a request has changed for good */
    private array $left = [];

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
            fn (\ReflectionClass $class) => Source::isApplication($this->app, $class),
        );
        self::compileRoutes($app);
        $this->checkpoint->note($app);
        $this->checkpoint->noteStatics();
        $this->process = new Process();
        $this->databases = new Databases($app);
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
        $databases = $app->bound('db')
            ? $app->make('config')->get('database.connections') ?? []
            : [];
        foreach (array_keys($databases) as $name) {
            self::attempt(static fn () => $app->make('db')->connection($name));
        }
    }

    /**
     * Serves requests, as long as they change nothing for good; then another worker takes over.
     *
     * @param \Closure(): void $answer calls begin() and end()
     */
    public function serve(\Closure $answer): void
    {
        while (frankenphp_handle_request($answer)) {
            if ($this->unfinished) {
                $this->restore();
            }
            if ($left = $this->left()) {
                error_log("surus: $left; another worker takes this one's place");

                return;
            }
        }
    }

    /**
     * Call this where a request begins. A request that ended by exit() may have run functions
     * since.
     */
    public function begin(): void
    {
        if ($this->unfinished) {
            $this->restore();
        }
        if ($left = $this->left()) {
            // By a warm-up: another worker would run it, too.
            error_log("surus: $left");
        }
        $this->unfinished = true;
        $this->databases->watch();
    }

    /** Call this where a request has ended. */
    public function end(): void
    {
        $this->restore();
        $this->unfinished = false;
    }

    /** Says, once, what requests have changed for good. */
    public function left(): ?string
    {
        $left = $this->left;
        $this->left = [];

        return $left ? sprintf(
            '%s keeps what a request has put there, as PHP cannot make it uninitialized again; give it a default, '
            .'or use the engine "rewind" without this warm-up',
            implode(', ', $left),
        ) : null;
    }

    public function restore(): void
    {
        $closed = $this->databases->release();
        array_push($this->left, ...$this->checkpoint->restore());
        self::forgetOnce();
        foreach ($closed as $connection) {
            // With the boot's configuration; it connects when it is used.
            self::attempt(static fn () => $connection->reconnect());
        }
        $this->process->restore();
    }

    /** Forgets what once() has kept: it is in a WeakMap, whose content nothing else restores. */
    public static function forgetOnce(): void
    {
        if (class_exists(Once::class, false)) {
            Once::flush();
        }
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

    /** Every request compares its path with routes, which would compile them each time. */
    public static function compileRoutes(Application $app): void
    {
        $routes = $app->make('router')->getRoutes();
        foreach ($routes instanceof RouteCollection ? $routes->getRoutes() : [] as $route) {
            self::attempt(static fn () => $route->compiled ??= $route->toSymfonyRoute()->compile());
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
