<?php

namespace Surus\Laravel;

use Illuminate\Contracts\Http\Kernel;
use Illuminate\Foundation\Application;
use Illuminate\Http\Request;
use Laravel\Octane\OctaneServiceProvider;
use Surus\Engine;
use Surus\Lambda\Hook;
use Surus\Retained;
use Surus\Warmup;

/**
 * Bootstraps an application with its providers and handles all requests with its kernel.
 *
 * On engines that restore memory or serve one request per process, the booted application serves,
 * and only warm-ups must be undone here. On `worker` every request is undone, and Octane's
 * listeners are called if Octane is installed.
 */
final class Runner
{
    private ?Isolation $isolation = null;

    private function __construct(
        private readonly Application $app,
        private readonly Kernel $kernel,
        private readonly Retained $retained,
    ) {
    }

    public static function serve(Application $app): void
    {
        $kernel = $app->make(Kernel::class);
        // Providers may use the request while they boot; on the command line Laravel creates one
        // for them.
        $boot = new BootRequest($app);
        $app->instance('request', $boot->request);
        $bootstrap = new Bootstrap($app, $kernel);
        // Needed by every request: routes, and the view compiler and finder.
        $app->make('router');
        $app->make('view');

        $isApplication = static fn (\ReflectionClass $class) => Source::isApplication($app, $class);
        $log = static fn (string $message) => error_log($message);
        $retained = new Retained(static fn () => ['the container' => $app], $isApplication, $log);
        $isolates = !Engine::forgets();
        $boot->release($retained, $log);
        if ($isolates && $app->getProviders(OctaneServiceProvider::class)) {
            Octane::serve($app, $retained);

            return;
        }
        $runner = new self($app, $kernel, $retained);
        if ($isolates) {
            Isolation::prepare($app);
            $runner->isolation = new Isolation($app);
            $runner->isolation->serve($runner->answer(...));
        } else {
            if (Engine::copiesBoot()) {
                Isolation::compileRoutes($app);
            }
            $bootstrap->end();
            Warmup::saveBoot();
            surus_serve($runner->answer(...));
        }
    }

    private function answer(): void
    {
        Hook::begin();
        if ($warmup = Warmup::current()) {
            $this->isolation ??= new Isolation($this->app);
            Warmup::afterwards(fn () => $this->afterWarmup($warmup->isLast()));
            if ($left = $this->isolation->left()) {
                // The second question to a copy of the process: the engine leaves the warm-up out.
                error_log("surus: $left");
                http_response_code(500);

                return;
            }
            $this->handle();
        } elseif (!Engine::forgets()) {
            $this->isolation->begin();
            $this->handle();
            $this->isolation->end();
            $this->retained->check();
        } else {
            $this->handle();
            self::disconnect($this->app);
        }
    }

    /** Does for a request what public/index.php has done for the boot. */
    private function beginAsFrontController(): void
    {
        if (\function_exists('surus_renew_constant')) {
            surus_renew_constant('LARAVEL_START', (float) $_SERVER['REQUEST_TIME_FLOAT']);
        }
        $maintenance = $this->app->basePath('storage/framework/maintenance.php');
        if (is_file($maintenance)) {
            require $maintenance;
        }
    }

    private function handle(): void
    {
        $this->beginAsFrontController();
        $request = Request::capture();
        $response = $this->kernel->handle($request);
        $response->send();
        $this->kernel->terminate($request, $response);
        if (!Engine::forgets()) {
            $this->isolation->watch($this->retained, $this->app, $request);
        }
    }

    private function afterWarmup(bool $isLast): void
    {
        self::disconnect($this->app);
        $this->isolation->restore();
        if (Warmup::restoreBoot()) {
            // It restores the object that keeps the values, but not what a warm-up has added.
            Isolation::forgetOnce();
            // Also what PHP code could not restore.
            $this->isolation->left();
            if ($isLast && Engine::forgets()) {
                Priming::apply($this->app);
            }
        } elseif ($left = $this->isolation->left()) {
            error_log("surus: $left");
        }
    }

    /**
     * Disconnects databases: forked processes would share the connections of a warm-up. Those that
     * the end of the boot has left open stay open.
     */
    public static function disconnect(Application $app): void
    {
        if ($app->resolved('db')) {
            foreach ($app['db']->getConnections() as $name => $connection) {
                if (!Bootstrap::keeps($connection)) {
                    $app['db']->purge($name);
                }
            }
        }
        self::disconnectRedis($app);
    }

    public static function disconnectRedis(Application $app): void
    {
        if ($app->resolved('redis')) {
            foreach (array_keys($app['redis']->connections() ?? []) as $name) {
                $app['redis']->purge($name);
            }
        }
    }
}
