<?php

namespace Surus\Lambda\Event;

use Surus\Lambda\Context;
use Surus\Lambda\Failures;

/**
 * Messages of a queue.
 *
 * @implements \IteratorAggregate<int, SqsRecord>
 */
final readonly class Sqs implements View, \Countable, \IteratorAggregate
{
    /** @use Records<SqsRecord> */
    use Records;

    public function __construct(mixed $event)
    {
        $this->records = self::read($event, 'SQS', 'eventSource', 'aws:sqs', static fn (array $record) => new SqsRecord($record));
    }

    /**
     * Has every message done, in order, and answers which have to come again: those that it threw for, and of a FIFO queue those behind
     * them in their group, which are not done. The event source mapping needs ReportBatchItemFailures.
     *
     * @param callable(SqsRecord): void $do
     * @param ?Context                  $context so that there is an answer before the time is over
     */
    public function each(callable $do, ?Context $context = null): ?array
    {
        return Failures::of($this->records, static fn (SqsRecord $record) => $record->messageId, static fn (SqsRecord $record) => $record->group, $do, $context);
    }
}
