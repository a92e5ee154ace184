<?php

namespace Surus\Lambda\Event;

use Surus\Lambda\Context;
use Surus\Lambda\Failures;

/**
 * Records of Kafka, grouped by partition.
 *
 * @implements \IteratorAggregate<int, KafkaRecord>
 */
final readonly class Kafka implements View, \Countable, \IteratorAggregate
{
    /** @use Records<KafkaRecord> */
    use Records;

    public function __construct(mixed $event)
    {
        $is = \is_array($event)
            && \in_array($event['eventSource'] ?? null, ['aws:kafka', 'SelfManagedKafka'], true);
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

    /**
     * Handles every record, each partition in its order, and returns from where on each must be
     * delivered again. The event source mapping needs ReportBatchItemFailures.
     *
     * @param callable(KafkaRecord): void $do
     * @param ?Context                    $context stops before the deadline
     */
    public function each(callable $do, ?Context $context = null): ?array
    {
        $partition = static fn (KafkaRecord $record) => "$record->topic-$record->partition";

        return Failures::of(
            $this->records,
            static fn (KafkaRecord $record) => [
                'partition' => $partition($record),
                'offset' => $record->offset
            ],
            $partition,
            $do,
            $context
        );
    }
}
