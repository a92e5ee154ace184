<?php

namespace Surus\Laravel;

use Illuminate\Foundation\Application;
use Illuminate\Http\Request;
use Laravel\Octane\ApplicationFactory;
use Laravel\Octane\Contracts\Client;
use Laravel\Octane\OctaneResponse;
use Laravel\Octane\RequestContext;
use Laravel\Octane\Worker;
use Surus\Lambda\Hook;
use Surus\Retained;

/**
 * Serves an application with Octane's worker on the engine `worker`, with all listeners in
 * config/octane.php, including those of other packages and of the application.
 */
final class Octane implements Client
{
    private ?\Throwable $failed = null;

    public static function serve(Application $app, Retained $retained): void
    {
        $client = new self();
        $worker = new Worker(self::booted($app), $client);
        $worker->boot();
        // Octane shares the boot's objects with every clone, and flushes only those it knows.
        $isolation = new Isolation($app);
        $worker->onRequestHandled(
            static fn (Request $request, $response, Application $clone) => $isolation
                ->watch($retained, $clone, $request),
        );
        $isolation->serve(static function () use ($client, $worker, $isolation, $retained): void {
            Hook::begin();
            $isolation->begin();
            $worker->handle(...$client->marshalRequest(new RequestContext()));
            $isolation->end();
            $retained->check();
            $client->fail();
        });
    }

    public function marshalRequest(RequestContext $context): array
    {
        return [Request::capture(), $context];
    }

    public function respond(RequestContext $context, OctaneResponse $response): void
    {
        if ('' !== (string) $response->outputBuffer) {
            // A controller's printed output comes first, but after the headers.
            $response->response->sendHeaders();
            echo $response->outputBuffer;
        }
        $response->response->send();
    }

    public function error(
        \Throwable $e,
        Application $app,
        Request $request,
        RequestContext $context
    ): void
    {
        $this->failed = $e;
    }

    /** Fails the request like an uncaught exception. */
    private function fail(): void
    {
        $failed = $this->failed;
        $this->failed = null;
        if ($failed) {
            throw $failed;
        }
    }

    /** Octane boots applications itself; this one is booted already. */
    private static function booted(Application $app): ApplicationFactory
    {
        return new class($app) extends ApplicationFactory {
            public function __construct(private readonly Application $app)
            {
                parent::__construct($app->basePath());
            }

            public function createApplication(array $initialInstances = []): Application
            {
                foreach ($initialInstances as $name => $instance) {
                    $this->app->instance($name, $instance);
                }
                $this->app->loadDeferredProviders();

                return $this->warm($this->app);
            }
        };
    }
}
