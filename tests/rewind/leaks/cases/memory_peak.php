<?php
// The peak of memory is the request's own.
return [
    'leaks' => false,
    'why' => 'every request starts with its own peak',
    'heavy' => true,
    'set' => function () { strlen(str_repeat('x', 60_000_000)); },
    'see' => fn () => memory_get_peak_usage() > 50_000_000 ? 'much' : 'little',
];
