<?php

namespace Surus\Lambda\Event;

/** A change of an object in a bucket. */
final readonly class S3Record
{
    /** `ObjectCreated:Put` and the like. */
    public string $name;
    public string $bucket;
    /** The object's key, decoded; events contain it URL-encoded. */
    public string $key;
    /** In bytes; null for a deleted object. */
    public ?int $size;
    public ?string $versionId;
    public \DateTimeImmutable $time;

    /** @param array $record as Lambda sent it */
    public function __construct(public array $record)
    {
        $object = $record['s3']['object'] ?? [];
        $this->name = $record['eventName'] ?? '';
        $this->bucket = $record['s3']['bucket']['name'] ?? '';
        $this->key = urldecode($object['key'] ?? '');
        $this->size = $object['size'] ?? null;
        $this->versionId = $object['versionId'] ?? null;
        $this->time = new \DateTimeImmutable($record['eventTime'] ?? '@0');
    }
}
