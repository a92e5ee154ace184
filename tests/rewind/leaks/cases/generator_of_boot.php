<?php
// A generator from the boot that a request advances.
return [
    'boot' => function () { $g = (function () { yield 'first'; yield 'second'; yield 'third'; })(); $g->current(); return $g; },
    'set' => function ($boot) { $boot->next(); },
    'see' => fn ($boot) => $boot->current() ?? 'ended',
];
