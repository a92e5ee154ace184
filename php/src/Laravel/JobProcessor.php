<?php

namespace Surus\Laravel;

use Illuminate\Contracts\Console\Kernel;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Foundation\Application;
use Illuminate\Contracts\Queue\Job;
use Illuminate\Queue\Events\JobFailed;
use Illuminate\Queue\Worker;
use Illuminate\Queue\WorkerOptions;
use Illuminate\Support\Facades\Facade;
use Surus\Engine;

/**
 * Runs jobs with Laravel's own worker, which decides about tries, backoff and failures. The caller
 * then tells the broker.
 */
final class JobProcessor
{
    /** Why Laravel could not record the failure of the last job. The caller must keep the job. */
    public ?\Throwable $unrecorded = null;

    public function __construct(private readonly Application $app)
    {
        $bootstrap = new Bootstrap($app, $app->make(Kernel::class));
        // As `queue:work` does; the worker leaves this to its callers.
        $app->make('events')->listen(JobFailed::class, function (
            JobFailed $failed
        ) use ($app): void {
            try {
                $app->make('queue.failer')->log(
                    $failed->connectionName,
                    $failed->job->getQueue(),
                    $failed->job->getRawBody(),
                    $failed->exception
                );
            } catch (\Throwable $thrown) {
                $this->unrecorded = $thrown;
                $app->make(ExceptionHandler::class)->report($thrown);
            }
        });
        $worker = $app->make('queue.worker');
        if ($app->bound('cache')) {
            $worker->setCache($app->make('cache')->driver());
        }
        $bootstrap->end();
    }

    /** Forgets what the last job has left in the application. */
    public function begin(): void
    {
        $this->unrecorded = null;
        if (null !== $reset = $this->resetOfLaravel()) {
            $reset();

            return;
        }
        if (method_exists($this->app, 'forgetScopedInstances')) {
            $this->app->forgetScopedInstances();
        }
        Facade::clearResolvedInstances();
    }

    /**
     * The function that `queue:work` calls before each job, which resets logs and databases, too.
     * Null where the engine does that.
     */
    private function resetOfLaravel(): ?callable
    {
        // It creates these services.
        if (Engine::forgets() || !$this->app->bound('db') || !$this->app->bound('log')) {
            return null;
        }
        $read = static fn (Worker $worker): ?callable => $worker->resetScope ?? null;

        return \Closure::bind($read, null, Worker::class)($this->app->make('queue.worker'));
    }

    /**
     * Whether jobs of a queue may run now, as `queue:work` asks before it takes one: not in
     * maintenance mode, nor while `queue:pause` or a listener of `Looping` stops the queue.
     *
     * @param bool $unpaused whether `queue:pause` need not be asked about
     */
    public function mayRun(
        string $connection,
        string $queue,
        WorkerOptions $options,
        bool $unpaused = false
    ): bool
    {
        $ask = static fn (Worker $worker): bool => $worker->daemonShouldRun(
            $options,
            $connection,
            $queue
        ) && !match (true) {
            $unpaused => false,
            method_exists($worker, 'getPausedQueues') => [] !== $worker->getPausedQueues(
                $connection,
                [$queue]
            ),
            // The first versions of Laravel 12 that have `queue:pause`.
            method_exists($worker->manager, 'isPaused') => $worker->manager->isPaused(
                $connection,
                $queue
            ),
            default => false,
        };
        try {
            return \Closure::bind($ask, null, Worker::class)($this->app->make('queue.worker'));
        } catch (\Throwable $thrown) {
            // Such as a cache that cannot be reached. No job may fail for that.
            $this->app->make(ExceptionHandler::class)->report($thrown);

            return false;
        }
    }

    /** Runs a job after begin(). The job's exception, if any, is reported and returned. */
    public function process(string $connection, Job $job, WorkerOptions $options): ?\Throwable
    {
        try {
            $this->app->make('queue.worker')->process($connection, $job, $options);
        } catch (\Throwable $thrown) {
            // Applications on Laravel 13 can leave that to listeners.
            if (Worker::$reportJobExceptions ?? true) {
                $this->app->make(ExceptionHandler::class)->report($thrown);
            }

            return $thrown;
        }

        return null;
    }
}
