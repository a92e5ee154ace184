<?php
// A string from the boot that is changed in place.
return [
    'boot' => fn () => (object) ['text' => str_repeat('x', 3) . PHP_MAJOR_VERSION],
    'set' => function ($boot) { $boot->text[0] = 'L'; $boot->text .= 'left'; },
    'see' => fn ($boot) => $boot->text,
];
