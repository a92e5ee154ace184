<?php

/*
 * Stands in for laravel/octane, which Debian does not package.
 *
 * It has the part of Octane's interface that Surus\Laravel\Octane uses, and the steps, events and
 * order of Octane 2.3's worker. Of the listeners in Octane's configuration it has four.
 */

namespace Laravel\Octane\Contracts {
    interface Client
    {
        public function marshalRequest(\Laravel\Octane\RequestContext $context): array;

        public function respond(\Laravel\Octane\RequestContext $context, \Laravel\Octane\OctaneResponse $response): void;

        public function error(\Throwable $e, \Illuminate\Foundation\Application $app, \Illuminate\Http\Request $request, \Laravel\Octane\RequestContext $context): void;
    }
}

namespace Laravel\Octane\Events {
    use Illuminate\Foundation\Application;
    use Illuminate\Http\Request;
    use Symfony\Component\HttpFoundation\Response;

    class WorkerStarting
    {
        public function __construct(public Application $app)
        {
        }
    }

    class RequestReceived
    {
        public function __construct(public Application $app, public Application $sandbox, public Request $request)
        {
        }
    }

    class RequestHandled
    {
        public function __construct(public Application $sandbox, public Request $request, public Response $response)
        {
        }
    }

    class RequestTerminated
    {
        public function __construct(
            public Application $app,
            public Application $sandbox,
            public Request $request,
            public Response $response,
        ) {
        }
    }

    class WorkerErrorOccurred
    {
        public function __construct(public \Throwable $exception, public Application $sandbox)
        {
        }
    }
}

namespace Laravel\Octane {
    use Illuminate\Contracts\Debug\ExceptionHandler;
    use Illuminate\Contracts\Events\Dispatcher;
    use Illuminate\Contracts\Http\Kernel;
    use Illuminate\Foundation\Application;
    use Illuminate\Http\Request;
    use Illuminate\Routing\Route;
    use Laravel\Octane\Events\RequestHandled;
    use Laravel\Octane\Events\RequestReceived;
    use Laravel\Octane\Events\RequestTerminated;
    use Laravel\Octane\Events\WorkerErrorOccurred;
    use Laravel\Octane\Events\WorkerStarting;
    use Symfony\Component\HttpFoundation\Response;

    class RequestContext
    {
        public function __construct(public array $data = [])
        {
        }
    }

    class OctaneResponse
    {
        public function __construct(public Response $response, public ?string $outputBuffer = null)
        {
        }
    }

    class ApplicationFactory
    {
        public function __construct(protected string $basePath)
        {
        }

        public function warm(Application $app, array $services = []): Application
        {
            foreach ($services ?: $app->make('config')->get('octane.warm', []) as $service) {
                if (is_string($service) && $app->bound($service)) {
                    $app->make($service);
                }
            }

            return $app;
        }
    }

    class OctaneServiceProvider extends \Illuminate\Support\ServiceProvider
    {
        public function register(): void
        {
            $warm = ['auth', 'cache', 'config', 'cookie', 'db', 'encrypter', 'hash', 'log', 'router'];
            $this->app['config']->set('octane.warm', [...$warm, 'session', 'session.store', 'url', 'view']);
        }

        public function boot(): void
        {
            $events = $this->app[Dispatcher::class];
            $events->listen(RequestReceived::class, static function ($event): void {
                $event->sandbox->make(Kernel::class)->setApplication($event->sandbox);
            });
            $events->listen(RequestReceived::class, static function ($event): void {
                $event->app->instance('request', $event->request);
                $event->sandbox->instance('request', $event->request);
            });
            $events->listen(RequestHandled::class, static function ($event): void {
                $event->response->headers->set('X-Served-By', 'octane');
            });
            // Of the application's own: one that fails.
            $events->listen(RequestTerminated::class, static function ($event): void {
                if ('terminates' === $event->request->query('fail')) {
                    throw new \RuntimeException('thrown behind the kernel');
                }
            });
            $events->listen(WorkerErrorOccurred::class, static function ($event): void {
                $event->sandbox[ExceptionHandler::class]->report($event->exception);
            });
        }
    }

    class CurrentApplication
    {
        public static function set(Application $app): void
        {
            $app->instance('app', $app);
            $app->instance(\Illuminate\Container\Container::class, $app);
            \Illuminate\Container\Container::setInstance($app);
            \Illuminate\Support\Facades\Facade::clearResolvedInstances();
            \Illuminate\Support\Facades\Facade::setFacadeApplication($app);
        }
    }

    class Worker
    {
        protected $requestHandledCallbacks = [];
        protected $app;

        public function __construct(protected ApplicationFactory $appFactory, protected Contracts\Client $client)
        {
        }

        public function boot(array $initialInstances = []): void
        {
            $instances = array_merge($initialInstances, [Contracts\Client::class => $this->client]);
            $this->app = $this->appFactory->createApplication($instances);
            self::dispatch($this->app, new WorkerStarting($this->app));
        }

        public function onRequestHandled(\Closure $callback)
        {
            $this->requestHandledCallbacks[] = $callback;

            return $this;
        }

        public function handle(Request $request, RequestContext $context): void
        {
            CurrentApplication::set($sandbox = clone $this->app);
            $hasResponded = false;
            try {
                ob_start();
                $response = $this->ask($sandbox, $request);
                $output = ob_get_contents();
                ob_end_clean();
                $this->client->respond($context, new OctaneResponse($response, $output));
                $hasResponded = true;
                foreach ($this->requestHandledCallbacks as $callback) {
                    $callback($request, $response, $sandbox);
                }
                $this->end($sandbox, $request, $response);
            } catch (\Throwable $e) {
                if (!$hasResponded) {
                    $this->client->error($e, $sandbox, $request, $context);
                }
                self::dispatch($sandbox, new WorkerErrorOccurred($e, $sandbox));
            } finally {
                $sandbox->flush();
                $this->app->make('view.engine.resolver')->forget('blade');
                $this->app->make('view.engine.resolver')->forget('php');
                unset($sandbox, $request, $response, $output);
                CurrentApplication::set($this->app);
            }
        }

        private function ask(Application $sandbox, Request $request): Response
        {
            $request->enableHttpMethodParameterOverride();
            self::dispatch($sandbox, new RequestReceived($this->app, $sandbox, $request));
            $response = $sandbox->make(Kernel::class)->handle($request);
            self::dispatch($sandbox, new RequestHandled($sandbox, $request, $response));

            return $response;
        }

        private function end(Application $sandbox, Request $request, Response $response): void
        {
            $sandbox->make(Kernel::class)->terminate($request, $response);
            self::dispatch($sandbox, new RequestTerminated($this->app, $sandbox, $request, $response));
            $route = $request->route();
            if ($route instanceof Route && method_exists($route, 'flushController')) {
                $route->flushController();
            }
        }

        private static function dispatch(Application $app, object $event): void
        {
            if ($app->bound(Dispatcher::class)) {
                $app[Dispatcher::class]->dispatch($event);
            }
        }
    }
}
