<?php

namespace Surus\Laravel;

use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Foundation\Application;
use Illuminate\Queue\Events\JobTimedOut;
use Illuminate\Queue\Events\WorkerStopping;
use Illuminate\Queue\MaxAttemptsExceededException;
use Illuminate\Queue\TimeoutExceededException;
use Illuminate\Queue\Worker;
use Illuminate\Queue\WorkerOptions;
use Surus\Engine;

/**
 * Runs the jobs of `surus work`. Laravel decides how a job ends; Surus does it, and answers
 * the broker.
 */
final class Jobs
{
    private readonly JobProcessor $processor;
    private readonly HorizonEvents $horizon;

    public function __construct(private readonly Application $app)
    {
        $this->processor = new JobProcessor($app);
        $this->horizon = new HorizonEvents($app);
    }

    public function handle(array $event): array
    {
        if ($event['describe'] ?? false) {
            $described = QueueConfiguration::describe($this->app);
            $this->disconnect();

            return $described;
        }
        if ($asked = $event['failures'] ?? null) {
            $failures = (new FailedJobs($this->app))->handle($asked);
            $this->disconnect();

            return $failures;
        }
        if ($asked = $event['may_run'] ?? null) {
            $options = new WorkerOptions();
            $mayRun = $this->processor->mayRun($asked['connection'], $asked['queue'], $options);
            $this->disconnect();

            return ['may_run' => $mayRun];
        }
        $job = new WorkJob(
            $this->app,
            $event['connection'],
            $event['queue'],
            $event['id'],
            $event['payload'],
            $event['attempts']
        );
        $options = new WorkerOptions();
        $options->maxTries = $event['tries'] ?? 1;
        $options->timeout = $event['timeout'];
        $options->backoff = (string) ($event['backoff'] ?? 0);
        if (
            !isset($event['lost'])
                && !$this->processor->mayRun(
                    $event['connection'],
                    $event['queue'],
                    $options,
                    $event['unpaused'] ?? false
                )
        ) {
            $this->disconnect();

            // An older binary does not know `refused`, and would take the job as done.
            return ['refused' => true, 'release' => 3];
        }
        $this->processor->begin();
        $this->horizon->begun($job);
        $thrown = isset($event['lost'])
            ? $this->lost($event['connection'], $job, $options, $event['lost'])
            : $this->processor->process($event['connection'], $job, $options);
        $this->horizon->ended($job);
        $this->tellEnd($options);
        $this->disconnect();
        $release = match (true) {
            $job->isDeleted() => null,
            $job->isReleased() => $job->releasedFor,
            // As in Laravel, a job that neither ends nor throws stays reserved, so it runs again.
            default => $this->backoff($job, $options),
        };

        return ['release' => $release,
            'unrecorded' => null !== $this->processor->unrecorded, 'error' => match (true) {
            null !== $thrown => get_debug_type($thrown).': '.$thrown->getMessage(),
            $job->hasFailed() => 'the job has called fail()',
            default => null,
        }];
    }

    /**
     * What Laravel decides about a job whose worker was lost. `queue:work` itself decides this only
     * at the alarm of a timeout, and otherwise when the job runs again.
     */
    private function lost(
        string $connection,
        WorkJob $job,
        WorkerOptions $options,
        array $lost
    ): \Throwable
    {
        // Laravel 10 and newer tell a timeout by its class.
        $class = $lost['timed_out'] && class_exists(TimeoutExceededException::class)
            ? TimeoutExceededException::class
            : MaxAttemptsExceededException::class;
        $why = new $class($job->resolveName().': '.$lost['why']);
        $decide = static function (Worker $worker) use (
            $connection,
            $job,
            $options,
            $lost,
            $why
        ): void {
            if ($lost['fail']) {
                $worker->failJob($job, $why);

                return;
            }
            $worker->markJobAsFailedIfWillExceedMaxAttempts(
                $connection,
                $job,
                (int) $options->maxTries,
                $why
            );
            // As `queue:work` asks at its alarm.
            $decisions = [
                'markJobAsFailedIfWillExceedMaxExceptions',
                'markJobAsFailedIfItShouldFailOnTimeout'
            ];
            foreach ($decisions as $decision) {
                if (
                    $lost['timed_out']
                        && !$job->hasFailed()
                        && method_exists($worker, $decision)
                ) {
                    $worker->$decision($connection, $job, $why);
                }
            }
        };
        \Closure::bind($decide, null, Worker::class)($this->app->make('queue.worker'));
        if ($lost['timed_out']) {
            $this->tellTimeout($connection, $job, $lost['timed_out']);
        }

        return $why;
    }

    /** Laravel 10 and newer have the event. */
    private function tellTimeout(string $connection, WorkJob $job, int $timeout): void
    {
        if (!class_exists(JobTimedOut::class)) {
            return;
        }
        $this->tell(new JobTimedOut($connection, $job, $timeout));
    }

    /** Packages such as Pulse write what they have collected when the worker stops. */
    private function tellEnd(WorkerOptions $options): void
    {
        if ('worker' !== Engine::name()) {
            // Laravel 8 ignores the options.
            $this->tell(new WorkerStopping(0, $options));
        }
    }

    /** Laravel has decided about the job already, so listeners cannot fail it. */
    private function tell(object $event): void
    {
        try {
            $this->app->make('events')->dispatch($event);
        } catch (\Throwable $thrown) {
            $this->app->make(ExceptionHandler::class)->report($thrown);
        }
    }

    private function backoff(WorkJob $job, WorkerOptions $options): int
    {
        $backoff = static fn (Worker $worker): int => $worker->calculateBackoff($job, $options);

        return \Closure::bind($backoff, null, Worker::class)($this->app->make('queue.worker'));
    }

    /** The engine forgets everything after a job, so nothing may stay connected to be cut off. */
    private function disconnect(): void
    {
        if (Engine::forgets()) {
            Runner::disconnect($this->app);
        }
    }
}
