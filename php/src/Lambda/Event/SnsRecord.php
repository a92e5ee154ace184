<?php

namespace Surus\Lambda\Event;

/** A notification of a topic. */
final readonly class SnsRecord
{
    public string $messageId;
    public string $message;
    public ?string $subject;
    public string $topicArn;
    public \DateTimeImmutable $timestamp;

    /** @param array $record as Lambda sent it */
    public function __construct(public array $record)
    {
        $sns = $record['Sns'] ?? [];
        $this->messageId = $sns['MessageId'] ?? '';
        $this->message = $sns['Message'] ?? '';
        $this->subject = $sns['Subject'] ?? null;
        $this->topicArn = $sns['TopicArn'] ?? '';
        $this->timestamp = new \DateTimeImmutable($sns['Timestamp'] ?? '@0');
    }

    /** Decodes the message as JSON. */
    public function json(): mixed
    {
        return json_decode(
            $this->message,
            true,
            512,
            \JSON_THROW_ON_ERROR | \JSON_BIGINT_AS_STRING
        );
    }

    /** @return array<string, string> the sender's attributes, binary ones decoded */
    public function attributes(): array
    {
        return array_map(
            static fn (array $attribute) => 'Binary' === $attribute['Type']
                ? base64_decode($attribute['Value'])
                : $attribute['Value'],
            $this->record['Sns']['MessageAttributes'] ?? [],
        );
    }
}
