<?php

namespace Surus\Lambda\Laravel;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Queue\WorkerOptions;
use Surus\Lambda\Context;
use Surus\Lambda\Event\Sqs;
use Surus\Lambda\Event\SqsRecord;
use Surus\Laravel\InConsole;
use Surus\Laravel\JobProcessor;

/**
 * Runs Laravel's jobs from an SQS queue. The handler file is `return new
 * Surus\Lambda\Laravel\Queue(require __DIR__.'/bootstrap/app.php');`.
 *
 * Lambda deletes the message of a job that succeeds or fails for good. A job that throws or is
 * released is delivered again. That is after its delay or backoff if it has one and the connection
 * has an SQS client, otherwise after the queue's visibility timeout. The queue counts the tries.
 */
final class Queue
{
    private readonly WorkerOptions $options;
    private readonly JobProcessor $processor;

    /**
     * @param ?WorkerOptions $options tries and backoff for jobs without their own; default: only
     * the queue's limit, and no backoff
     */
    public function __construct(
        private readonly Application $app,
        private readonly string $connection = 'sqs',
        ?WorkerOptions $options = null
    )
    {
        $this->options = $options ?? new WorkerOptions();
        if (null === $options) {
            $this->options->maxTries = 0;
        }
        InConsole::begin();
        $this->processor = new JobProcessor($app);
    }

    public function handle(mixed $event, Context $context): ?array
    {
        return (new Sqs($event))->each($this->process(...), $context);
    }

    private function process(SqsRecord $record): void
    {
        $job = new SqsJob($this->app, $record, $this->connection);
        $this->processor->begin();
        $thrown = $this->processor->process($this->connection, $job, $this->options);
        if ($this->processor->unrecorded) {
            throw $this->processor->unrecorded;
        }
        // A job that failed for good is deleted and recorded, and must not be delivered again.
        if ($thrown && !$job->isDeleted()) {
            throw $thrown;
        }
        if (!$job->isDeleted()) {
            throw new Released(
                \sprintf(
                    '%s (%s) %s',
                    $job->resolveName(),
                    $record->messageId,
                    $job->isReleased()
                        ? 'has been released'
                        : 'has neither been deleted nor released'
                )
            );
        }
        // Lambda deletes the message. Until here, the job could have to run again.
        $job->deleteOverflow();
    }
}
