<?php

namespace Surus\Lambda\Event;

use Surus\Lambda\Context;
use Surus\Lambda\Failures;

/**
 * Changes of a DynamoDB table.
 *
 * @implements \IteratorAggregate<int, DynamoDbRecord>
 */
final readonly class DynamoDb implements View, \Countable, \IteratorAggregate
{
    /** @use Records<DynamoDbRecord> */
    use Records;

    public function __construct(mixed $event)
    {
        $this->records = self::read(
            $event,
            'DynamoDB',
            'eventSource',
            'aws:dynamodb',
            static fn (array $record) => new DynamoDbRecord($record)
        );
    }

    /**
     * Handles every record in order and returns from where on they must be delivered again. The
     * event source mapping needs ReportBatchItemFailures.
     *
     * @param callable(DynamoDbRecord): void $do
     * @param ?Context                       $context stops before the deadline
     */
    public function each(callable $do, ?Context $context = null): ?array
    {
        return Failures::of(
            $this->records,
            static fn (DynamoDbRecord $record) => $record->sequenceNumber,
            static fn () => '',
            $do,
            $context
        );
    }
}
