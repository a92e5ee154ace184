<?php

namespace Surus\Lambda;

/**
 * Callbacks for moments in a function's life. Register them in the handler's file, or where the
 * application boots. An exception fails the start, the restore or the event.
 */
final class Hook
{
    /** @var array<string, list<\Closure>> by moment, in the order of execution */
    private static array $registered = [];

    /** SnapStart: before the snapshot; the last one registered runs first. For handlers. */
    public static function beforeSnapshot(callable $do): void
    {
        self::$registered['before_snapshot'] = [
            $do(...),
            ...self::$registered['before_snapshot'] ?? []
        ];
    }

    /** SnapStart: after a restore, before the first event. For handlers. */
    public static function afterRestore(callable $do): void
    {
        self::$registered['after_restore'][] = $do(...);
    }

    /**
     * Before the first event after a freeze: to check a database connection, or to close
     * connections that are kept. $do gets the seconds.
     *
     * @param callable(int): void $do
     */
    public static function onThaw(callable $do): void
    {
        self::$registered['thaw'][] = $do(...);
    }

    /** Runs the callbacks of a moment. */
    public static function run(string $moment, mixed ...$arguments): void
    {
        foreach (self::$registered[$moment] ?? [] as $do) {
            $do(...$arguments);
        }
    }

    /** Call this where an event begins. Runs the callbacks for a thaw if there was one. */
    public static function begin(): void
    {
        $seconds = Context::thawed();
        if (null !== $seconds) {
            self::run('thaw', $seconds);
        }
    }
}
