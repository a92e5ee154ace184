<?php

namespace Surus\Lambda;

/**
 * What an application wants to do at moments in its function's life. To be registered where the handler's file is loaded, or where the
 * application boots. What throws fails what the moment belongs to: the start, the restore, the event.
 */
final class Hook
{
    /** @var array<string, list<\Closure>> by moment, in the order in which they are to run */
    private static array $registered = [];

    /** SnapStart: before the snapshot is taken; what is registered last runs first. Of handlers. */
    public static function beforeSnapshot(callable $do): void
    {
        self::$registered['before_snapshot'] = [$do(...), ...self::$registered['before_snapshot'] ?? []];
    }

    /** SnapStart: where the snapshot has been restored, before the first event. Of handlers. */
    public static function afterRestore(callable $do): void
    {
        self::$registered['after_restore'][] = $do(...);
    }

    /**
     * Before the first event after the function was frozen: to ask a database whether it is still there, to let connections go that are
     * kept. $do is given the seconds.
     *
     * @param callable(int): void $do
     */
    public static function onThaw(callable $do): void
    {
        self::$registered['thaw'][] = $do(...);
    }

    /** Runs what is registered for a moment. */
    public static function run(string $moment, mixed ...$arguments): void
    {
        foreach (self::$registered[$moment] ?? [] as $do) {
            $do(...$arguments);
        }
    }

    /** To be called where an event begins: runs what is registered for a thaw, if there was one. */
    public static function begin(): void
    {
        $seconds = Context::thawed();
        if (null !== $seconds) {
            self::run('thaw', $seconds);
        }
    }
}
