<?php

namespace Surus\Lambda\Event;

/** A record of Kafka. */
final readonly class KafkaRecord
{
    public string $topic;
    public int $partition;
    public int $offset;
    public ?string $key;
    public ?string $value;
    /** @var list<array{string, string}> names and values; names may repeat */
    public array $headers;
    public \DateTimeImmutable $time;

    /** @param array $record as Lambda sent it */
    public function __construct(public array $record)
    {
        $this->topic = $record['topic'] ?? '';
        $this->partition = $record['partition'] ?? 0;
        $this->offset = $record['offset'] ?? 0;
        $this->key = isset($record['key']) ? base64_decode($record['key']) : null;
        $this->value = isset($record['value']) ? base64_decode($record['value']) : null;
        $headers = [];
        foreach ($record['headers'] ?? [] as $header) {
            foreach ($header as $name => $bytes) {
                // A list of bytes, which Java sends signed.
                $headers[] = [
                    $name,
                    implode('', array_map(static fn (int $byte) => \chr($byte & 255), $bytes))
                ];
            }
        }
        $this->headers = $headers;
        $this->time = \DateTimeImmutable::createFromFormat(
            'U.u',
            \sprintf('%.6F', ($record['timestamp'] ?? 0) / 1000)
        );
    }

    /** Decodes the value as JSON. */
    public function json(): mixed
    {
        return json_decode(
            (string) $this->value,
            true,
            512,
            \JSON_THROW_ON_ERROR | \JSON_BIGINT_AS_STRING
        );
    }
}
