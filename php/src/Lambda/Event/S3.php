<?php

namespace Surus\Lambda\Event;

/**
 * Changes of objects in an S3 bucket.
 *
 * @implements \IteratorAggregate<int, S3Record>
 */
final readonly class S3 implements View, \Countable, \IteratorAggregate
{
    /** @use Records<S3Record> */
    use Records;

    public function __construct(mixed $event)
    {
        $this->records = self::read(
            $event,
            'S3',
            'eventSource',
            'aws:s3',
            static fn (array $record) => new S3Record($record)
        );
    }
}
