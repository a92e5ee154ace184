<?php
// An uncaught exception while an object from the boot is half changed.
return [
    'ends' => true,
    'boot' => fn () => (object) ['a' => 1, 'b' => 1],
    'set' => function ($boot) { ob_start(); $boot->a = 2; throw new Exception('left'); },
    'see' => fn ($boot) => ob_get_level() . http_response_code(),
    'leaks' => false,
    'why' => 'the response belongs to its request only',
];
