<?php

namespace Surus\Lambda\Event;

/** What has happened to an object of a bucket. */
final readonly class S3Record
{
    /** `ObjectCreated:Put` and the like. */
    public string $name;
    public string $bucket;
    /** The object's, as it is; events have it as a form would send it. */
    public string $key;
    /** In bytes; null when it is gone. */
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
