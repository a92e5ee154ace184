<?php

namespace Surus\Lambda\Laravel;

use Illuminate\Contracts\Console\Kernel;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Foundation\Application;
use Illuminate\Queue\Events\JobFailed;
use Illuminate\Queue\WorkerOptions;
use Illuminate\Support\Facades\Facade;
use Surus\Lambda\Context;
use Surus\Lambda\Event\Sqs;
use Surus\Lambda\Event\SqsRecord;

/**
 * Runs Laravel's jobs from an SQS queue. The handler file is `return new
 * Surus\Lambda\Laravel\Queue(require __DIR__.'/bootstrap/app.php');`.
 *
 * Lambda deletes the message of a job that succeeds or fails for good. A job that throws or is
 * released comes again: after its delay or
 * backoff if it has one and the connection has an SQS client, otherwise after the queue's
 * visibility timeout. The queue counts the tries.
 */
final class Queue
{
    private readonly WorkerOptions $options;

    /** @param ?WorkerOptions $options tries and backoff for jobs without their own; default: only the queue's limit, and no backoff */
    public function __construct(private readonly Application $app, private readonly string $connection = 'sqs', ?WorkerOptions $options = null)
    {
        $this->options = $options ?? new WorkerOptions();
        if (null === $options) {
            $this->options->maxTries = 0;
        }
        if (!$app->hasBeenBootstrapped()) {
            $app->make(Kernel::class)->bootstrap();
        }
        // As `queue:work` does; the worker leaves this to its callers.
        $app->make('events')->listen(JobFailed::class, static function (JobFailed $failed) use ($app): void {
            $app->make('queue.failer')->log($failed->connectionName, $failed->job->getQueue(), $failed->job->getRawBody(), $failed->exception);
        });
        $worker = $app->make('queue.worker');
        if ($app->bound('cache')) {
            $worker->setCache($app->make('cache')->driver());
        }
    }

    public function handle(mixed $event, Context $context): ?array
    {
        return (new Sqs($event))->each($this->process(...), $context);
    }

    private function process(SqsRecord $record): void
    {
        if (method_exists($this->app, 'forgetScopedInstances')) {
            $this->app->forgetScopedInstances();
        }
        Facade::clearResolvedInstances();
        $job = new SqsJob($this->app, $record, $this->connection);
        try {
            $this->app->make('queue.worker')->process($this->connection, $job, $this->options);
        } catch (\Throwable $thrown) {
            $this->app->make(ExceptionHandler::class)->report($thrown);
            // A job that failed for good is deleted and recorded, and must not come again.
            if (!$job->isDeleted()) {
                throw $thrown;
            }
        }
        if (!$job->isDeleted()) {
            throw new Released(\sprintf('%s (%s) %s', $job->resolveName(), $record->messageId, $job->isReleased() ? 'has been released' : 'has neither been deleted nor released'));
        }
    }
}
