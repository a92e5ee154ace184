<?php

// Tests what tells two objects of one service apart.

use Surus\Fingerprint;

/** @param array<string, object> $others */
$of = static fn (
    object $service,
    array $others = []
): string => Fingerprint::ofServices(['it' => $service], $others)['it'];

return [
    'equal objects have one fingerprint and others do not' => static function () use ($of): void {
        same($of(new ArrayObject([1])), $of(new ArrayObject([1])));
        same(false, $of((object) ['a' => 1]) === $of((object) ['a' => 2]));
        same(
            false,
            $of((object) ['a' => (object) ['b' => 1]]) === $of(
                (object) ['a' => (object) ['b' => 2]]
            )
        );
    },
    'another service is only named' => static function () use ($of): void {
        $other = (object) ['changes' => 1];
        $before = $of((object) ['other' => $other], ['other' => $other]);
        $other->changes = 2;
        same($before, $of((object) ['other' => $other], ['other' => $other]));
    },
    'the time is recognised as number, text and object' => static function () use ($of): void {
        foreach (
            [
                time(),
                microtime(true),
                (string) time(),
                date('Y-m-d'),
                date('r Y-m-d'),
                (int) date('Y'),
                new DateTime(),
                new DateTimeImmutable('today'),
                new DateTimeImmutable('yesterday'),
                new DatePeriod(new DateTime('today'), new DateInterval('P1D'), 2)
            ] as $time
        ) {
            same(true, str_contains($of((object) ['at' => $time]), Fingerprint::TIME));
        }
        foreach (
            [
                0,
                3600,
                1.5,
                '',
                'text',
                '2001-01-01',
                new DateTime('2001-01-01'),
                true,
                null
            ] as $other
        ) {
            same(false, str_contains($of((object) ['at' => $other]), Fingerprint::TIME));
        }
    },
    'what closures capture is a part of them' => static function () use ($of): void {
        $closure = static fn (mixed $value): Closure => static fn () => $value;
        same($of((object) [$closure(1)]), $of((object) [$closure(1)]));
        same(false, $of((object) [$closure(1)]) === $of((object) [$closure(2)]));
        $bound = static fn (object $to): Closure => Closure::bind(fn () => $this, $to);
        same(
            false,
            $of((object) [$bound((object) ['a' => 1])]) === $of(
                (object) [$bound((object) ['a' => 2])]
            )
        );
        $recursive = (object) [];
        $recursive->closure = static fn () => $recursive;
        same($of($recursive), $of($recursive));
    },
    'the contents of objects of PHP are a part of them' => static function () use ($of): void {
        $contain = [
            static fn (int $n) => new ArrayObject([$n]),
            static fn (int $n) => new ArrayIterator([$n]),
            static fn (int $n) => new DateInterval("PT{$n}S"),
            static fn (int $n) => new DateTimeZone("+0$n:00"),
            static fn (int $n) => new Random\Engine\Mt19937($n),
            static fn (int $n) => new Random\Randomizer(new Random\Engine\Xoshiro256StarStar($n)),
            static fn (int $n) => SplFixedArray::fromArray([$n]),
            static function (int $n): SplObjectStorage {
                $storage = new SplObjectStorage();
                $storage[new stdClass()] = $n;

                return $storage;
            },
            static function (int $n): SplQueue {
                $queue = new SplQueue();
                $queue[] = $n;

                return $queue;
            },
            static function (int $n): array {
                $map = new WeakMap();
                $map[$key = new stdClass()] = $n;

                return [$map, $key];
            },
            static fn (int $n) => new class([$n]) extends ArrayObject {
                public function __serialize(): array
                {
                    throw new LogicException('it is called by nobody');
                }
            },
        ];
        foreach ($contain as $number => $one) {
            same($of((object) [$one(1)]), $of((object) [$one(1)]));
            same([$number, false], [$number, $of((object) [$one(1)]) === $of((object) [$one(2)])]);
            same(false, str_contains($of((object) [$one(1)]), Fingerprint::HIDDEN));
        }
    },
    'an object whose contents PHP does not show is named' => static function () use ($of): void {
        foreach ([new SplPriorityQueue(), (static fn () => yield 1)()] as $hidden) {
            $named = Fingerprint::HIDDEN.$hidden::class;
            same(true, str_contains($of((object) [$hidden]), $named));
        }
        $handler = new class() extends SessionHandler {
        };
        foreach ([new ReflectionClass('stdClass'), new Exception(), $handler] as $shown) {
            same(false, str_contains($of((object) [$shown]), Fingerprint::HIDDEN));
        }
    },
    'objects that contain each other end' => static function () use ($of): void {
        $one = new stdClass();
        $one->other = (object) ['one' => $one];
        same($of($one), $of($one));
    },
];
