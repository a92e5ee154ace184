<?php
// A string from the boot that sodium_memzero overwrites.
return [
    'needs' => ['sodium'],
    'boot' => fn () => (object) ['text' => bin2hex(random_bytes(4))],
    'set' => function ($boot) { sodium_memzero($boot->text); },
    'see' => fn ($boot) => strlen((string) $boot->text) . '',
];
