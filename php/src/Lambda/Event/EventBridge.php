<?php

namespace Surus\Lambda\Event;

/** An event of an event bus or a schedule. */
final readonly class EventBridge implements View
{
    public string $id;
    /** `aws.ec2`, or the name of an application. */
    public string $source;
    public string $detailType;
    public mixed $detail;
    public \DateTimeImmutable $time;
    /** @var list<string> ARNs */
    public array $resources;
    /** As Lambda sent it. */
    public array $event;

    public function __construct(mixed $event)
    {
        if (!\is_array($event) || !isset($event['detail-type'], $event['source'])) {
            throw new NotThisEvent('EventBridge', $event);
        }
        $this->event = $event;
        $this->id = $event['id'] ?? '';
        $this->source = $event['source'];
        $this->detailType = $event['detail-type'];
        $this->detail = $event['detail'] ?? null;
        $this->time = new \DateTimeImmutable($event['time'] ?? '@0');
        $this->resources = $event['resources'] ?? [];
    }
}
