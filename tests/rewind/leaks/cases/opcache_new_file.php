<?php
// A file first compiled by a request and included again by a later one.
return [
    'leaks' => false,
    'why' => 'the same file is the same code',
    'set' => function () { if ((include_once __DIR__ . '/../include/late.php') === true) { return; } LeakLate::$value = 'left'; LeakLate::next(); },
    'see' => function () { $first = include_once __DIR__ . '/../include/late.php'; return LeakLate::NAME . (new LeakLate)->say() . count((new ReflectionClass('LeakLate'))->getMethods()); },
];
