<?php
// A suspended generator with a finally block that a request leaves in a variable from the boot.
return [
    'boot' => fn () => (object) ['generator' => null],
    'set' => function ($boot) {
        $boot->generator = (function () { try { yield 'left'; yield 2; } finally { $GLOBALS['leak_generator_ended'] = true; } })();
        $boot->generator->current();
    },
    'see' => fn ($boot) => $boot->generator?->current() ?? 'none',
];
