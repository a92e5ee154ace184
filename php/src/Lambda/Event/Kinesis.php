<?php

namespace Surus\Lambda\Event;

/**
 * Records of a shard.
 *
 * @implements \IteratorAggregate<int, KinesisRecord>
 */
final readonly class Kinesis implements View, \Countable, \IteratorAggregate
{
    /** @use Records<KinesisRecord> */
    use Records;

    public function __construct(mixed $event)
    {
        $this->records = self::read($event, 'Kinesis', 'eventSource', 'aws:kinesis', static fn (array $record) => new KinesisRecord($record));
    }
}
