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
                new DateTime()
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
    'objects that contain each other end' => static function () use ($of): void {
        $one = new stdClass();
        $one->other = (object) ['one' => $one];
        same($of($one), $of($one));
    },
];
