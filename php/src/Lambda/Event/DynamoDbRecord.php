<?php

namespace Surus\Lambda\Event;

/** A change of an item. */
final readonly class DynamoDbRecord
{
    /** INSERT, MODIFY or REMOVE. */
    public string $name;
    public string $sequenceNumber;
    /** @var array<string, mixed> */
    public array $keys;
    /** The item after the change, if the stream has it. */
    public ?array $newImage;
    /** The item before it. */
    public ?array $oldImage;

    /** @param array $record as Lambda sent it */
    public function __construct(public array $record)
    {
        $change = $record['dynamodb'] ?? [];
        $item = static fn (?array $image) => null === $image
            ? null
            : array_map(self::value(...), $image);
        $this->name = $record['eventName'] ?? '';
        $this->sequenceNumber = $change['SequenceNumber'] ?? '';
        $this->keys = $item($change['Keys'] ?? []);
        $this->newImage = $item($change['NewImage'] ?? null);
        $this->oldImage = $item($change['OldImage'] ?? null);
    }

    /**
     * Converts a DynamoDB value such as `{"N": "1"}`. A number that PHP cannot hold exactly stays a
     * string.
     */
    public static function value(array $value): mixed
    {
        $type = array_key_first($value);
        $content = $value[$type];

        return match ($type) {
            'S', 'BOOL' => $content,
            'N' => self::number($content),
            'B' => base64_decode($content),
            'NULL' => null,
            'L' => array_map(self::value(...), $content),
            'M' => array_map(self::value(...), $content),
            'SS' => $content,
            'NS' => array_map(self::number(...), $content),
            'BS' => array_map(base64_decode(...), $content),
            default => throw new \UnexpectedValueException("unknown DynamoDB type $type"),
        };
    }

    private static function number(string $text): int|float|string
    {
        $number = $text + 0;

        return (string) $number === $text ? $number : $text;
    }
}
