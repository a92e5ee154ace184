<?php

namespace Surus\Laravel;

use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Foundation\Application;
use Illuminate\Queue\Events\JobFailed;

/**
 * Tells Laravel Horizon how jobs begin and end. Its own queue does so when it reserves, releases
 * and deletes jobs, which Surus does in place of that queue.
 */
final class HorizonEvents
{
    private const QUEUE = 'Laravel\Horizon\RedisQueue';

    private readonly bool $isInstalled;
    private ?\Throwable $failure = null;

    public function __construct(private readonly Application $app)
    {
        $this->isInstalled = class_exists(self::QUEUE);
        if ($this->isInstalled) {
            $app->make('events')->listen(JobFailed::class, function (JobFailed $failed): void {
                $this->failure = $failed->exception;
            });
        }
    }

    public function begun(WorkJob $job): void
    {
        $this->failure = null;
        $this->send($job, 'JobReserved');
    }

    /** In the order in which Horizon gets them from `horizon:work`. */
    public function ended(WorkJob $job): void
    {
        if (!$job->isDeleted()) {
            $this->send($job, 'JobReleased');

            return;
        }
        $this->send($job, 'JobDeleted', $job);
        if ($job->hasFailed() && null !== $this->failure) {
            $this->send($job, 'JobFailed', $this->failure, $job);
        }
    }

    private function send(WorkJob $job, string $event, mixed ...$arguments): void
    {
        if (!$this->isInstalled) {
            return;
        }
        // Whatever happens here changes nothing for the job.
        try {
            $connection = $job->getConnectionName();
            if (!is_a($this->app->make('queue')->connection($connection), self::QUEUE)) {
                return;
            }
            $class = "Laravel\\Horizon\\Events\\$event";
            $event = new $class(...[...$arguments, $job->getRawBody()]);
            // Like the payload that `queue:work` reserves.
            $event->payload->set(['attempts' => $job->attempts()]);
            $event->connection($connection)->queue($job->getQueue());
            $this->app->make('events')->dispatch($event);
        } catch (\Throwable $thrown) {
            $this->app->make(ExceptionHandler::class)->report($thrown);
        }
    }
}
