<?php

namespace Surus\Lambda\Event;

use Surus\Lambda\Context;
use Surus\Lambda\Failures;

/**
 * Messages of an SQS queue.
 *
 * @implements \IteratorAggregate<int, SqsRecord>
 */
final readonly class Sqs implements View, \Countable, \IteratorAggregate
{
    /** @use Records<SqsRecord> */
    use Records;

    public function __construct(mixed $event)
    {
        $this->records = self::read(
            $event,
            'SQS',
            'eventSource',
            'aws:sqs',
            static fn (array $record) => new SqsRecord($record)
        );
    }

    /**
     * Handles every message in order and returns those that must be delivered again. These are
     * messages whose handling threw, and in a FIFO queue the later ones of their group, which do
     * not run. The event source mapping needs ReportBatchItemFailures.
     *
     * @param callable(SqsRecord): void $do
     * @param ?Context                  $context stops before the deadline
     * @param bool                      $goOn    whether later messages of a failed one's group run
     * before it succeeds
     */
    public function each(callable $do, ?Context $context = null, bool $goOn = false): ?array
    {
        return Failures::of(
            $this->inTurn(),
            static fn (SqsRecord $record) => $record->messageId,
            static fn (SqsRecord $record) => $goOn ? null : $record->group,
            $do,
            $context
        );
    }

    /**
     * The messages, beginning with another group at each delivery. Otherwise a message that always
     * times out would keep the others from running until they are dead letters. Groups keep their
     * order.
     *
     * @return list<SqsRecord>
     */
    private function inTurn(): array
    {
        $groups = [];
        $receives = 1;
        foreach ($this->records as $number => $record) {
            $groups[null === $record->group ? "#$number" : "=$record->group"][] = $record;
            $receives = max($receives, $record->receiveCount);
        }
        if (1 === $receives) {
            return $this->records;
        }
        $groups = array_values($groups);
        $first = ($receives - 1) % \count($groups);

        return array_merge(...\array_slice($groups, $first), ...\array_slice($groups, 0, $first));
    }
}
