<?php

// Tests that static properties and static variables that hold an object are found and named.

use Surus\Retained;
use Surus\Statics;

class Shelf
{
    public static mixed $front = null;
    protected static mixed $back = null;

    public static function put(object $object): void
    {
        static $first;
        static $all = [];
        static $deep = [];
        $first ??= $object;
        $all[] = ['of' => [$object]];
        $deep = [[[[[$object]]]]];
        self::$back = [$object];
    }

    public static function first(object $object): object
    {
        static $first;

        return $first ??= $object;
    }

    public static function latest(object $object): object
    {
        static $latest;

        return $latest = $object;
    }
}

final class WideShelf extends Shelf
{
    private static mixed $box = null;

    public static function pack(object $object): void
    {
        self::$box = (object) ['of' => $object];
    }
}

/** Stands for a class of a library. */
final class Rack
{
    public static mixed $front = null;

    public static function put(object $object): void
    {
        static $first;
        $first ??= $object;
        self::$front = $object;
    }
}

final class Costly
{
    public static int $made = 0;

    public function __construct()
    {
        ++self::$made;
    }
}

final class Unread
{
    public static mixed $property = NoSuchShelf::SIZE;

    public static function ofMissingClass(): void
    {
        static $size = NoSuchShelf::SIZE;
    }

    public static function ofObject(): Costly
    {
        static $costly = new Costly();

        return $costly;
    }

    public static function ofLaterClass(object $object): int
    {
        static $size = LaterShelf::SIZE, $kept;
        $kept = $object;

        return $size;
    }
}

function bookmark(object $object): void
{
    static $mark;
    $mark = $object;
}

$isApplication = static fn (ReflectionClass $class): bool => Rack::class !== $class->name;
$places = static function (Statics $statics, object ...$objects): array {
    $found = array_keys($statics->holders($objects));
    sort($found);

    return $found;
};

return [
    'every static that holds an object is found' => static function () use (
        $isApplication,
        $places
    ): void {
        $statics = new Statics($isApplication);
        $object = new stdClass();
        same([], $places($statics, $object));
        same([], $places($statics));
        Shelf::put($object);
        WideShelf::pack($object);
        Rack::put($object);
        bookmark($object);
        same(
            [
                'Shelf::$back',
                'Shelf::put() (static variable $all)',
                'Shelf::put() (static variable $first)',
                'bookmark() (static variable $mark)',
            ],
            $places($statics, new stdClass(), $object)
        );
        same([], $places($statics, new stdClass()));
        same($object, $statics->values()['(library) Rack::$front']);
        bookmark(new stdClass());
        Shelf::$front = [array_fill(0, 2_000, null), $object];
        same(
            [
                'Shelf::$back',
                'Shelf::put() (static variable $all)',
                'Shelf::put() (static variable $first)',
            ],
            $places($statics, $object)
        );
        Shelf::$front = null;
    },
    'reading statics runs no code of the application' => static function () use (
        $isApplication,
        $places
    ): void {
        $asked = [];
        $load = static function (string $class) use (&$asked): void {
            $asked[] = $class;
        };
        spl_autoload_register($load, true, true);
        $before = spl_autoload_functions();
        $statics = new Statics($isApplication);
        $object = new stdClass();
        $places($statics, $object);
        $statics->values();
        $closure = static function () use ($object): Costly {
            static $costly = new Costly();

            return $costly;
        };
        same($object, $statics->variablesOf(new ReflectionFunction($closure))['object']);
        same([[], 0], [$asked, Costly::$made]);
        same($before, spl_autoload_functions());
        spl_autoload_unregister($load);
        Unread::ofObject();
        same(1, Costly::$made);
        // Unreadable until its function can run.
        eval('final class LaterShelf { const SIZE = 3; }');
        same(3, Unread::ofLaterClass($object));
        same(['Unread::ofLaterClass() (static variable $kept)'], $places($statics, $object));
    },
    'statics of code that is declared later are found' => static function () use (
        $isApplication,
        $places
    ): void {
        $statics = new Statics($isApplication);
        $object = new stdClass();
        $places($statics, $object);
        // PHP lists this class before classes that were declared earlier.
        if (!class_exists('ExtraShelf', false)) {
            class ExtraShelf
            {
                public static ?object $object = null;
            }
            function keepExtra(object $object): void
            {
                static $kept;
                $kept = [$object];
            }
        }
        ExtraShelf::$object = $object;
        keepExtra($object);
        same(
            ['ExtraShelf::$object', 'keepExtra() (static variable $kept)'],
            $places($statics, $object)
        );
    },
    'statics that keep the same object are named once each' => static function () use (
        $isApplication
    ): void {
        $said = [];
        $retained = new Retained(
            static fn () => [],
            $isApplication,
            static function (string $message) use (&$said): void {
                $said[] = strstr($message, ' keeps', true);
            },
        );
        $request = static function (\Closure ...$keeps) use ($retained): \WeakReference {
            $object = new stdClass();
            $retained->watch($object);
            foreach ($keeps as $keep) {
                $keep($object);
            }

            return \WeakReference::create($object);
        };
        $latest = 'surus: Shelf::latest() (static variable $latest)';
        foreach (range(1, 22) as $_) {
            $request(Shelf::latest(...));
            $retained->check();
        }
        same([$latest], $said);
        // It keeps one object for good, while the other static makes every request suspicious.
        $kept = $request(Shelf::first(...), Shelf::latest(...), bookmark(...));
        $retained->check();
        foreach (range(24, 31) as $_) {
            same(1, count($said));
            $last = $request(Shelf::latest(...));
            $retained->check();
        }
        $request(Shelf::latest(...));
        $retained->check();
        same(
            [
                $latest,
                'surus: Shelf::first() (static variable $first)',
                'surus: bookmark() (static variable $mark)'
            ],
            $said
        );
        same([true, null], [null !== $kept->get(), $last->get()]);
        Shelf::latest(new stdClass());
        bookmark(new stdClass());
    },
    'message about a static variable says how to avoid it' => static function () use (
        $isApplication
    ): void {
        $said = '';
        $retained = new Retained(
            static fn () => [],
            $isApplication,
            static function (string $message) use (&$said): void {
                $said = $message;
            },
        );
        $object = new stdClass();
        bookmark($object);
        $retained->watch($object);
        unset($object);
        $retained->check();
        foreach (['keeps the stdClass', 'fetch the object in each call', '"rewind"'] as $part) {
            same(true, str_contains($said, $part));
        }
        bookmark(new stdClass());
    },
];
