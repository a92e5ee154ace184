<?php

namespace Surus\Lambda\Event;

/**
 * The records of an event, countable and iterable.
 *
 * @template T
 */
trait Records
{
    /** @var list<T> */
    public readonly array $records;

    public function getIterator(): \ArrayIterator
    {
        return new \ArrayIterator($this->records);
    }

    public function count(): int
    {
        return \count($this->records);
    }

    /**
     * @param callable(array): T $make
     *
     * @return list<T>
     */
    private static function read(
        mixed $event,
        string $name,
        string $key,
        string $source,
        callable $make
    ): array
    {
        $records = \is_array($event) ? $event['Records'] ?? null : null;
        if (!\is_array($records) || !array_is_list($records)) {
            throw new NotThisEvent($name, $event);
        }
        foreach ($records as $record) {
            if (!\is_array($record) || ($record[$key] ?? null) !== $source) {
                throw new NotThisEvent($name, $record);
            }
        }

        return array_map($make, $records);
    }
}
