<?php

namespace Surus\Lambda\Event;

use Surus\Lambda\Context;
use Surus\Lambda\Failures;

/**
 * Changes of a table.
 *
 * @implements \IteratorAggregate<int, DynamoDbRecord>
 */
final readonly class DynamoDb implements View, \Countable, \IteratorAggregate
{
    /** @use Records<DynamoDbRecord> */
    use Records;

    public function __construct(mixed $event)
    {
        $this->records = self::read($event, 'DynamoDB', 'eventSource', 'aws:dynamodb', static fn (array $record) => new DynamoDbRecord($record));
    }

    /**
     * Has every record done, in order, and answers from where on they have to come again. The event source mapping needs
     * ReportBatchItemFailures.
     *
     * @param callable(DynamoDbRecord): void $do
     * @param ?Context                       $context so that there is an answer before the time is over
     */
    public function each(callable $do, ?Context $context = null): ?array
    {
        return Failures::of($this->records, static fn (DynamoDbRecord $record) => $record->sequenceNumber, static fn () => '', $do, $context);
    }
}
