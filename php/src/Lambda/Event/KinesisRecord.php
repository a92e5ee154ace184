<?php

namespace Surus\Lambda\Event;

/** A record of a shard. */
final readonly class KinesisRecord
{
    public string $data;
    public string $partitionKey;
    public string $sequenceNumber;
    /** When it arrived in the stream. */
    public \DateTimeImmutable $arrival;

    /** @param array $record as Lambda sent it */
    public function __construct(public array $record)
    {
        $kinesis = $record['kinesis'] ?? [];
        $this->data = base64_decode($kinesis['data'] ?? '');
        $this->partitionKey = $kinesis['partitionKey'] ?? '';
        $this->sequenceNumber = $kinesis['sequenceNumber'] ?? '';
        $this->arrival = \DateTimeImmutable::createFromFormat(
            'U.u',
            \sprintf('%.6F', $kinesis['approximateArrivalTimestamp'] ?? 0)
        );
    }

    /** Decodes the data as JSON. */
    public function json(): mixed
    {
        return json_decode($this->data, true, 512, \JSON_THROW_ON_ERROR | \JSON_BIGINT_AS_STRING);
    }
}
