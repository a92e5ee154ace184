<?php

namespace Surus\Lambda\Event;

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
}
