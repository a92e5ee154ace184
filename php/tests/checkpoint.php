<?php

// Tests that a checkpoint restores all that it can, and that retained objects are named.

use Surus\Checkpoint;
use Surus\Retained;

#[AllowDynamicProperties]
class Held
{
    public ?object $part = null;
    protected array $list = ['boot'];
    private string $name = 'boot';
    public readonly string $once;
    public static array $all = ['boot'];
    private ?string $unset = null;

    public function change(string $by): void
    {
        $this->part = new stdClass();
        $this->list[] = $by;
        $this->name = $by;
        $this->once = $by;
        self::$all[] = $by;
        unset($this->unset);
        $this->dynamic = $by;
    }

    public function __get(string $name): mixed
    {
        return 'by __get';
    }

    public function seen(): array
    {
        return [
            $this->part,
            $this->list,
            $this->name,
            self::$all,
            $this->unset,
            isset($this->dynamic)
        ];
    }

    public static function keep(object $object): void
    {
        static $kept;
        $kept ??= $object;
    }
}

final class HeldToo extends Held
{
    private string $name = 'boot, too';

    public function ownName(?string $set = null): string
    {
        return $this->name = $set ?? $this->name;
    }
}

final class Basket
{
    public ?object $request = null;
    public static ?object $current = null;
}

class Greeter
{
    public int $id = 0;
    public ?Held $held = null;
    public readonly string $once;
    private string $name = '';

    public function __construct(string $name)
    {
        $this->name = $name;
        $this->once = $name;
        $this->held = new Held();
    }

    public function greet(): array
    {
        return [$this->name, $this->once, $this->id];
    }
}

class NamedGreeter extends Greeter
{
    public array $said = [];
}

final class LastGreeter
{
    public string $name = '';

    public function __construct(public readonly string $once)
    {
        $this->name = $once;
    }
}

$noStatics = static fn (): bool => false;
$ours = static fn (ReflectionClass $class): bool => \in_array(
    $class->name,
    [Held::class, Basket::class],
    true
);
$search = static function (
    array $roots,
    object $wanted,
    array $harmless = []
) use ($ours): ?string {
    return (
        new Retained(static fn () => $roots, $ours, static fn () => null, $harmless)
    )->holder($wanted);
};

return [
    'properties of all kinds are restored' => static function () use ($ours): void {
        $checkpoint = new Checkpoint($ours);
        $held = new HeldToo();
        $before = $held->seen();
        $checkpoint->note($held);
        $checkpoint->noteStatics();
        foreach (['ada', 'bob'] as $visitor) {
            // The second visitor finds the read-only property initialized.
            try {
                $held->change($visitor);
            } catch (Error $error) {
                same('bob', $visitor);
            }
            $held->ownName($visitor);
            $checkpoint->restore();
            same($before, $held->seen());
            same('boot, too', $held->ownName());
        }
    },
    'objects reachable only through a closure or an array are restored' => static function () use (
        $noStatics
    ): void {
        $hidden = new Held();
        $deep = new Held();
        $root = new stdClass();
        $root->list = [['deep' => [$deep]], static fn () => $hidden];
        $checkpoint = new Checkpoint($noStatics);
        $checkpoint->note($root);
        $hidden->change('ada');
        $deep->change('ada');
        $root->list = [];
        $checkpoint->restore();
        same([null, ['boot'], 'boot'], array_slice($hidden->seen(), 0, 3));
        same([null, ['boot'], 'boot'], array_slice($deep->seen(), 0, 3));
        same(2, count($root->list));
    },
    'lazy objects are lazy again after each request' => static function () use ($noStatics): void {
        if (\PHP_VERSION_ID < 80400) {
            return;
        }
        $visitor = new stdClass();
        $visitor->name = 'boot';
        $root = new stdClass();
        foreach ([Greeter::class, NamedGreeter::class] as $class) {
            $reflection = new ReflectionClass($class);
            $ghost = $reflection->newLazyGhost(
                static fn (Greeter $it) => $it->__construct($visitor->name)
            );
            $reflection->getProperty('id')->setRawValueWithoutLazyInitialization($ghost, 7);
            $root->list["$class ghost"] = $ghost;
            $root->list["$class proxy"] = $reflection->newLazyProxy(
                static fn () => new $class($visitor->name)
            );
        }
        $final = new ReflectionClass(LastGreeter::class);
        $root->final = $final->newLazyProxy(static fn () => new LastGreeter($visitor->name));
        $checkpoint = new Checkpoint($noStatics);
        $checkpoint->note($root);
        foreach (['ada', 'bob', 'eve'] as $name) {
            $visitor->name = $name;
            foreach ($root->list as $which => $object) {
                $reflection = new ReflectionClass($object);
                same(true, $reflection->isUninitializedLazyObject($object));
                if ('ada' === $name && str_ends_with($which, 'ghost')) {
                    $reflection->getProperty('id')->setRawValueWithoutLazyInitialization(
                        $object,
                        8
                    );
                    same([], $checkpoint->restore());
                    $visitor->name = $name;
                }
                same([$name, $name, str_ends_with($which, 'ghost') ? 7 : 0], $object->greet());
                $object->id = 9;
                same(true, $checkpoint->has($object));
            }
            same($name, $root->final->once);
            same([], $checkpoint->restore());
            same('boot', $visitor->name);
        }
    },
    'lazy object that cannot be lazy again is named once' => static function () use (
        $noStatics
    ): void {
        if (\PHP_VERSION_ID < 80400) {
            return;
        }
        $visitor = new stdClass();
        $visitor->name = 'boot';
        $class = new ReflectionClass(LastGreeter::class);
        $ghost = $class->newLazyGhost(
            static fn (LastGreeter $it) => $it->__construct($visitor->name)
        );
        $other = (new ReflectionClass(Greeter::class))->newLazyGhost(static fn () => null);
        $checkpoint = new Checkpoint($noStatics);
        $checkpoint->note((object) ['ghost' => $ghost, 'other' => $other, 'visitor' => $visitor]);
        $visitor->name = 'ada';
        same('ada', $ghost->name);
        (new ReflectionProperty(Greeter::class, 'id'))->setRawValueWithoutLazyInitialization(
            $other,
            1
        );
        same(['Greeter->id', 'LastGreeter->once'], $checkpoint->restore());
        same([], $checkpoint->restore());
    },
    'object that a request has made lazy is restored' => static function () use (
        $noStatics
    ): void {
        if (\PHP_VERSION_ID < 80400) {
            return;
        }
        $class = new ReflectionClass(Basket::class);
        foreach (['resetAsLazyGhost', 'resetAsLazyProxy'] as $reset) {
            $basket = new Basket();
            $basket->request = new stdClass();
            $boot = $basket->request;
            $checkpoint = new Checkpoint($noStatics);
            $checkpoint->note($basket);
            $class->$reset($basket, static fn () => throw new LogicException('it is called'));
            same([], $checkpoint->restore());
            same($boot, $basket->request);
        }
    },
    'kept properties and leaves stay' => static function () use ($noStatics): void {
        $basket = new Basket();
        $leaf = new Held();
        $seldom = new ArrayIterator();
        $root = (object) ['basket' => $basket, 'leaf' => $leaf];
        $checkpoint = new Checkpoint($noStatics, [Basket::class => ['request']], [Held::class]);
        $checkpoint->note($root);
        $basket->request = $seldom;
        $leaf->change('ada');
        $checkpoint->restore();
        same([$seldom, 'ada'], [$basket->request, $leaf->seen()[2]]);
        same([true, false], [$checkpoint->has($basket), $checkpoint->has($leaf)]);
    },
    'statics of a class loaded later get their defaults' => static function (): void {
        $checkpoint = new Checkpoint(
            static fn (ReflectionClass $class): bool => 'Later' === $class->name
        );
        $checkpoint->noteStatics();
        eval(
            'class Later { public static $list = ["default"]; private static ?object $user = null; static function set($u) { self::$user = $u; self::$list[] = $u; } static function get() { return self::$user; } }'
        );
        Later::set(new stdClass());
        $checkpoint->restore();
        same([['default'], null], [Later::$list, Later::get()]);
        Later::set(new stdClass());
        $checkpoint->restore();
        same([['default'], null], [Later::$list, Later::get()]);
    },
    'statics of a class declared in the middle get their defaults' => static function (): void {
        // PHP gives a class the place at which its file was compiled, before later classes.
        eval(
            'function declare_between() { if (!class_exists("Between")) { class Between { public static $user = "default"; } } }'
        );
        eval('class AfterBetween { public static $user = "default"; }');
        $ours = static fn (ReflectionClass $class): bool => \in_array(
            $class->name,
            ['Between', 'AfterBetween'],
            true
        );
        AfterBetween::$user = 'boot';
        $checkpoint = new Checkpoint($ours);
        $checkpoint->noteStatics();
        foreach (['ada', 'bob'] as $visitor) {
            declare_between();
            Between::$user = AfterBetween::$user = $visitor;
            $checkpoint->restore();
            same(['default', 'boot'], [Between::$user, AfterBetween::$user]);
        }
    },
    'an alias that a request makes changes no statics' => static function (): void {
        eval('class Aliased { public static $made = "default"; }');
        $checkpoint = new Checkpoint(
            static fn (ReflectionClass $class): bool => 'Aliased' === $class->name
        );
        Aliased::$made = 'boot';
        $checkpoint->noteStatics();
        foreach (['ada', 'bob'] as $visitor) {
            class_exists('Shorter', false) || class_alias('Aliased', 'Shorter');
            Shorter::$made = $visitor;
            $checkpoint->restore();
            same('boot', Aliased::$made);
        }
    },
    'properties that stay initialized are told once' => static function (): void {
        eval(
            'final class Typed { private static string $name; public readonly string $once; function set($to) { self::$name = $to; $this->once ??= $to; } }'
        );
        foreach ([null, static fn (ReflectionClass $class): bool => false] as $tells) {
            $checkpoint = new Checkpoint(
                static fn (ReflectionClass $class): bool => str_starts_with($class->name, 'Typed'),
                [],
                [],
                $tells
            );
            $typed = new Typed();
            $checkpoint->note($typed);
            $checkpoint->noteStatics();
            same([], $checkpoint->restore());
            $typed->set('ada');
            same($tells ? [] : ['Typed->once', 'Typed::$name'], $checkpoint->restore());
            same([], $checkpoint->restore());
        }
        eval('final class TypedLater { public static string $name; }');
        $checkpoint = new Checkpoint(
            static fn (ReflectionClass $class): bool => 'TypedLater' === $class->name
        );
        TypedLater::$name = 'ada';
        same(['TypedLater::$name'], $checkpoint->restore());
    },
    'the holder of an object is found and named' => static function () use ($search): void {
        $request = new stdClass();
        same(null, $search(['root' => new stdClass()], $request));
        $basket = new Basket();
        $basket->request = $request;
        same('Basket->request', $search(['root' => (object) ['library' => [$basket]]], $request));
        Basket::$current = $request;
        same('Basket::$current', $search([], $request));
        Basket::$current = null;
        $other = new stdClass();
        Held::keep($other);
        same('Held::keep() (static variable $kept)', $search([], $other));
        same(
            '',
            $search(
                ['root' => new ArrayObject([(object) ['request' => $request]])],
                $request,
                ['stdClass', 'ArrayObject']
            )
        );
    },
    'only an object that outlives its request is named, once' => static function () use (
        $ours
    ): void {
        $said = [];
        $basket = new Basket();
        $retained = new Retained(
            static fn () => ['root' => $basket],
            $ours,
            static function (string $message) use (&$said): void {
                $said[] = $message;
            },
        );
        for ($request = 0; $request < 4; ++$request) {
            $retained->watch(new stdClass());
            $cycle = new stdClass();
            $cycle->self = $cycle;
            $retained->watch($cycle);
            unset($cycle);
            $retained->check();
        }
        same([], $said);
        for ($request = 0; $request < 5; ++$request) {
            $basket->request = new stdClass();
            $retained->watch($basket->request);
            $retained->check();
        }
        same(1, count($said));
        same(
            true,
            str_starts_with(
                $said[0],
                'surus: Basket->request keeps the stdClass of a request that has ended'
            )
        );
    },
];
