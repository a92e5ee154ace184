<?php
// A generator that a request leaves half run, with a finally block, in a variable of boot.
return [
    'boot' => fn () => (object) ['generator' => null],
    'set' => function ($boot) {
        $boot->generator = (function () { try { yield 'left'; yield 2; } finally { $GLOBALS['leak_generator_ended'] = true; } })();
        $boot->generator->current();
    },
    'see' => fn ($boot) => $boot->generator?->current() ?? 'none',
];
