<?php

/*
 * Stands in for laravel/octane, which Debian does not package.
 *
 * It has the part of Octane's interface that Surus\Laravel\Octane uses. Like Octane's, its worker
 * clones the application and notifies its listeners.
 */

namespace Laravel\Octane\Contracts {
    interface Client
    {
        public function marshalRequest(\Laravel\Octane\RequestContext $context): array;

        public function respond(\Laravel\Octane\RequestContext $context, \Laravel\Octane\OctaneResponse $response): void;

        public function error(\Throwable $e, \Illuminate\Foundation\Application $app, \Illuminate\Http\Request $request, \Laravel\Octane\RequestContext $context): void;
    }
}

namespace Laravel\Octane {
    use Illuminate\Contracts\Http\Kernel;
    use Illuminate\Foundation\Application;
    use Illuminate\Http\Request;

    final class RequestContext
    {
    }

    final class OctaneResponse
    {
        public function __construct(public $response, public ?string $outputBuffer = null)
        {
        }
    }

    class ApplicationFactory
    {
        public function __construct(protected string $basePath)
        {
        }

        public function warm(Application $app): Application
        {
            $app->make('session.store');

            return $app;
        }
    }

    final class OctaneServiceProvider extends \Illuminate\Support\ServiceProvider
    {
    }

    final class Worker
    {
        private Application $app;
        private array $handled = [];

        public function __construct(private ApplicationFactory $factory, private Contracts\Client $client)
        {
        }

        public function boot(): void
        {
            $this->app = $this->factory->createApplication([Contracts\Client::class => $this->client]);
        }

        public function onRequestHandled(\Closure $do): void
        {
            $this->handled[] = $do;
        }

        public function handle(Request $request, RequestContext $context): void
        {
            self::use($clone = clone $this->app);
            try {
                $this->app->instance('request', $request);
                $clone->make('events')->dispatch('octane.received', [$clone, $request]);
                ob_start();
                $clone->make(Kernel::class)->setApplication($clone);
                $response = $clone->make(Kernel::class)->handle($request);
                $response->headers->set('X-Served-By', 'octane');
                $this->client->respond($context, new OctaneResponse($response, ob_get_clean()));
                foreach ($this->handled as $do) {
                    $do($request, $response, $clone);
                }
                $clone->make(Kernel::class)->terminate($request, $response);
                if ('terminates' === $request->query('fail')) {
                    throw new \RuntimeException('thrown behind the kernel');
                }
            } catch (\Throwable $e) {
                $this->client->error($e, $clone, $request, $context);
            } finally {
                $clone->flush();
                self::use($this->app);
            }
        }

        private static function use(Application $app): void
        {
            $app->instance('app', $app);
            $app->instance(\Illuminate\Container\Container::class, $app);
            \Illuminate\Container\Container::setInstance($app);
            \Illuminate\Support\Facades\Facade::clearResolvedInstances();
            \Illuminate\Support\Facades\Facade::setFacadeApplication($app);
        }
    }
}
