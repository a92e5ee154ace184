<?php

namespace Surus\Laravel;

use Illuminate\Container\Container;
use Illuminate\Contracts\Queue\Job as JobContract;
use Illuminate\Queue\Jobs\Job;

/** A job that `surus work` has reserved, and deletes or releases as Laravel has decided. */
final class WorkJob extends Job implements JobContract
{
    /** Seconds until it runs again, if it is released. */
    public int $releasedFor = 0;

    private mixed $decoded = null;

    public function __construct(
        Container $container,
        string $connection,
        string $queue,
        private readonly string $id,
        private readonly string $body,
        private readonly int $attempts,
    ) {
        $this->container = $container;
        $this->connectionName = $connection;
        $this->queue = $queue;
    }

    public function getJobId(): string
    {
        return $this->id;
    }

    public function getRawBody(): string
    {
        return $this->body;
    }

    /** Laravel asks for it several times in each job. */
    public function payload(): mixed
    {
        return $this->decoded ??= parent::payload();
    }

    public function attempts(): int
    {
        return $this->attempts;
    }

    /** @param \DateTimeInterface|\DateInterval|int $delay */
    public function release($delay = 0): void
    {
        // First, because Laravel does not release a job again that counts as released.
        $this->releasedFor = max(0, $this->secondsUntil($delay));
        parent::release($delay);
    }
}
