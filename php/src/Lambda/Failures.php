<?php

namespace Surus\Lambda;

/**
 * Handles the records of one call one after another, so that a failing one does not bring all of
 * them back.
 */
final class Failures
{
    /** Time kept for ending a late call and sending its response. */
    private const RESERVE_MS = 500;

    /**
     * @template T
     *
     * @param list<T>                       $records
     * @param callable(T): (string|array)   $id
     * @param callable(T): ?string          $group   records of a group are in order: after a
     * failure none of them runs
     * @param callable(T): void             $do
     * @param ?Context                      $context if the time left is shorter than the longest
     * record so far has taken, the rest are delivered again; otherwise Lambda ends the call and all
     * are delivered again
     *
     * @return ?array Lambda's list of failures; null if there are none
     */
    public static function of(
        array $records,
        callable $id,
        callable $group,
        callable $do,
        ?Context $context
    ): ?array
    {
        $failed = $groups = [];
        $longest = 0;
        foreach ($records as $number => $record) {
            $left = $context?->remainingMs();
            if ($number > 0 && null !== $left && $left < $longest + self::RESERVE_MS) {
                Log::line(
                    'surus: no time left for '
                        .(\count($records) - $number)
                        .' records; they will be delivered again'
                );
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
                // The error of a single record says more than a list of failures.
                if (1 === \count($records)) {
                    throw $thrown;
                }
                Log::line(
                    'surus: '
                        .json_encode($id($record), \JSON_UNESCAPED_SLASHES)
                        ." failed and will be delivered again: $thrown"
                );
                $failed[] = ['itemIdentifier' => $id($record)];
                $groups[$of ?? ''] = true;
            }
            $longest = max($longest, (hrtime(true) - $began) / 1e6);
        }

        return $failed ? ['batchItemFailures' => $failed] : null;
    }
}
