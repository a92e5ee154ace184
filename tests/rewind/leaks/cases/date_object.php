<?php
// A DateTime from the boot that a request modifies.
return [
    'boot' => fn () => new DateTime('2020-01-01', new DateTimeZone('UTC')),
    'set' => function ($boot) { $boot->modify('+1 year')->setTimezone(new DateTimeZone('Asia/Tokyo')); },
    'see' => fn ($boot) => $boot->format('c'),
];
