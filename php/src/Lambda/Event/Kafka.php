<?php

namespace Surus\Lambda\Event;

/**
 * Records of Kafka, of one partition after another.
 *
 * @implements \IteratorAggregate<int, KafkaRecord>
 */
final readonly class Kafka implements View, \Countable, \IteratorAggregate
{
    /** @use Records<KafkaRecord> */
    use Records;

    public function __construct(mixed $event)
    {
        $is = \is_array($event) && \in_array($event['eventSource'] ?? null, ['aws:kafka', 'SelfManagedKafka'], true);
        if (!$is || !\is_array($event['records'] ?? null)) {
            throw new NotThisEvent('Kafka', $event);
        }
        $records = [];
        foreach ($event['records'] as $list) {
            foreach ($list as $record) {
                $records[] = new KafkaRecord($record);
            }
        }
        $this->records = $records;
    }
}
