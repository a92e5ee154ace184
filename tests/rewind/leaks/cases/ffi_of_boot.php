<?php
// Memory that the boot allocated by FFI.
return [
    'needs' => ['FFI'],
    'boot' => fn () => FFI::cdef()->new('int[4]'),
    'set' => function ($boot) { $boot[1] = 7; },
    'see' => fn ($boot) => (string) $boot[1],
];
