<?php

namespace Surus\Lambda;

/** Records done one after another in one call, so that one that fails does not bring all of them back. */
final class Failures
{
    /**
     * @template T
     *
     * @param list<T>             $records
     * @param callable(T): string $id
     * @param callable(T): ?string $group those of one are in order: behind one that failed nothing of it is done
     * @param callable(T): void   $do
     *
     * @return ?array Lambda's list of what has to come again; null when all is done
     */
    public static function of(array $records, callable $id, callable $group, callable $do): ?array
    {
        $failed = $groups = [];
        foreach ($records as $record) {
            $of = $group($record);
            if (null !== $of && isset($groups[$of])) {
                $failed[] = ['itemIdentifier' => $id($record)];
                continue;
            }
            try {
                $do($record);
            } catch (\Throwable $thrown) {
                // Of a single one the error itself says more.
                if (1 === \count($records)) {
                    throw $thrown;
                }
                Log::line('surus: '.$id($record)." has failed, and will come again: $thrown");
                $failed[] = ['itemIdentifier' => $id($record)];
                $groups[$of ?? ''] = true;
            }
        }

        return $failed ? ['batchItemFailures' => $failed] : null;
    }
}
