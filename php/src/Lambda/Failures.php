<?php

namespace Surus\Lambda;

/** Records done one after another in one call, so that one that fails does not bring all of them back. */
final class Failures
{
    /** What ends a call that is late, and carries its answer. */
    private const RESERVE_MS = 500;

    /**
     * @template T
     *
     * @param list<T>                       $records
     * @param callable(T): (string|array)   $id
     * @param callable(T): ?string          $group   those of one are in order: behind one that failed nothing of it is done
     * @param callable(T): void             $do
     * @param ?Context                      $context when the next record would not be done in its time, as long as the longest has taken,
     *                                               those that are left come again: else Lambda would end the call, and all would
     *
     * @return ?array Lambda's list of what has to come again; null when all is done
     */
    public static function of(array $records, callable $id, callable $group, callable $do, ?Context $context): ?array
    {
        $failed = $groups = [];
        $longest = 0;
        foreach ($records as $number => $record) {
            $left = $context?->remainingMs();
            if ($number > 0 && null !== $left && $left < $longest + self::RESERVE_MS) {
                Log::line('surus: no time is left for '.(\count($records) - $number).' records; they will come again');
                foreach (\array_slice($records, $number) as $unrun) {
                    $failed[] = ['itemIdentifier' => $id($unrun)];
                }
                break;
            }
            $of = $group($record);
            if (null !== $of && isset($groups[$of])) {
                $failed[] = ['itemIdentifier' => $id($record)];
                continue;
            }
            $began = hrtime(true);
            try {
                $do($record);
            } catch (\Throwable $thrown) {
                // Of a single one the error itself says more.
                if (1 === \count($records)) {
                    throw $thrown;
                }
                Log::line('surus: '.json_encode($id($record), \JSON_UNESCAPED_SLASHES)." has failed, and will come again: $thrown");
                $failed[] = ['itemIdentifier' => $id($record)];
                $groups[$of ?? ''] = true;
            }
            $longest = max($longest, (hrtime(true) - $began) / 1e6);
        }

        return $failed ? ['batchItemFailures' => $failed] : null;
    }
}
