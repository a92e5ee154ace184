<?php

namespace Surus\Lambda\Event;

use Surus\Lambda\Context;
use Surus\Lambda\Failures;

/**
 * Messages of a queue.
 *
 * @implements \IteratorAggregate<int, SqsRecord>
 */
final readonly class Sqs implements View, \Countable, \IteratorAggregate
{
    /** @use Records<SqsRecord> */
    use Records;

    public function __construct(mixed $event)
    {
        $this->records = self::read($event, 'SQS', 'eventSource', 'aws:sqs', static fn (array $record) => new SqsRecord($record));
    }

    /**
     * Has every message done, in order, and answers which have to come again: those that it threw for, and of a FIFO queue those behind
     * them in their group, which are not done. The event source mapping needs ReportBatchItemFailures.
     *
     * @param callable(SqsRecord): void $do
     * @param ?Context                  $context so that there is an answer before the time is over
     * @param bool                      $goOn    whether those behind one that has failed are done all the same, before it
     */
    public function each(callable $do, ?Context $context = null, bool $goOn = false): ?array
    {
        return Failures::of($this->inTurn(), static fn (SqsRecord $record) => $record->messageId, static fn (SqsRecord $record) => $goOn ? null : $record->group, $do, $context);
    }

    /**
     * The messages, beginning with another group each time that the queue hands them out: one that always takes all the time would
     * otherwise keep the others from being done until they are dead letters. Groups keep their order.
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
