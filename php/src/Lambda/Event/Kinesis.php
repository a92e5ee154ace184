<?php

namespace Surus\Lambda\Event;

use Surus\Lambda\Context;
use Surus\Lambda\Failures;

/**
 * Records of a Kinesis shard.
 *
 * @implements \IteratorAggregate<int, KinesisRecord>
 */
final readonly class Kinesis implements View, \Countable, \IteratorAggregate
{
    /** @use Records<KinesisRecord> */
    use Records;

    public function __construct(mixed $event)
    {
        $this->records = self::read(
            $event,
            'Kinesis',
            'eventSource',
            'aws:kinesis',
            static fn (array $record) => new KinesisRecord($record)
        );
    }

    /**
     * Handles every record in order and returns from where on they must be delivered again. The
     * event source mapping needs ReportBatchItemFailures.
     *
     * @param callable(KinesisRecord): void $do
     * @param ?Context                      $context stops before the deadline
     */
    public function each(callable $do, ?Context $context = null): ?array
    {
        return Failures::of(
            $this->records,
            static fn (KinesisRecord $record) => $record->sequenceNumber,
            static fn () => '',
            $do,
            $context
        );
    }
}
