<?php

namespace Surus\Lambda\Laravel;

use Illuminate\Contracts\Container\Container;
use Illuminate\Contracts\Queue\Job as JobContract;
use Illuminate\Queue\Jobs\Job;
use Surus\Lambda\Event\SqsRecord;

/** A job that Lambda has taken from the queue, and deletes there when it is told that all went well. It calls no API. */
final class SqsJob extends Job implements JobContract
{
    /** @var \Illuminate\Container\Container */
    protected $container;

    public function __construct(Container $container, private readonly SqsRecord $record, string $connectionName)
    {
        $this->container = $container;
        $this->connectionName = $connectionName;
        $this->queue = $record->queue();
    }

    public function getJobId(): string
    {
        return $this->record->messageId;
    }

    public function getRawBody(): string
    {
        return $this->record->body;
    }

    public function attempts(): int
    {
        return $this->record->receiveCount;
    }

    /** As Lambda sent it. */
    public function getSqsJob(): array
    {
        return $this->record->record;
    }
}
