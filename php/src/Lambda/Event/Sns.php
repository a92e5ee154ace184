<?php

namespace Surus\Lambda\Event;

/**
 * Notifications of an SNS topic.
 *
 * @implements \IteratorAggregate<int, SnsRecord>
 */
final readonly class Sns implements View, \Countable, \IteratorAggregate
{
    /** @use Records<SnsRecord> */
    use Records;

    public function __construct(mixed $event)
    {
        $this->records = self::read(
            $event,
            'SNS',
            'EventSource',
            'aws:sns',
            static fn (array $record) => new SnsRecord($record)
        );
    }
}
