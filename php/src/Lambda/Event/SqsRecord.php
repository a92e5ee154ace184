<?php

namespace Surus\Lambda\Event;

/** A message of a queue. */
final readonly class SqsRecord
{
    public string $messageId;
    public string $body;
    /** The number of deliveries, including this one. */
    public int $receiveCount;
    /** Only in FIFO queues: messages of one group arrive in order. */
    public ?string $group;

    /** @param array $record as Lambda sent it */
    public function __construct(public array $record)
    {
        $this->messageId = $record['messageId'] ?? '';
        $this->body = $record['body'] ?? '';
        $this->receiveCount = (int) ($record['attributes']['ApproximateReceiveCount'] ?? 1);
        $isFifo = str_ends_with($record['eventSourceARN'] ?? '', '.fifo');
        $this->group = $isFifo ? $record['attributes']['MessageGroupId'] ?? '' : null;
    }

    /** Decodes the body as JSON. */
    public function json(): mixed
    {
        return json_decode($this->body, true, 512, \JSON_THROW_ON_ERROR | \JSON_BIGINT_AS_STRING);
    }

    /** The queue's name. */
    public function queue(): string
    {
        return substr((string) strrchr(':'.($this->record['eventSourceARN'] ?? ''), ':'), 1);
    }

    /** @return array<string, string> the sender's message attributes, binary ones decoded */
    public function attributes(): array
    {
        return array_map(
            static fn (array $attribute) => $attribute['stringValue']
                ?? base64_decode($attribute['binaryValue'] ?? ''),
            $this->record['messageAttributes'] ?? [],
        );
    }
}
