<?php
// A property of an object made at boot.
return [
    'boot' => fn () => (object) ['value' => 'booted', 'list' => []],
    'set' => function ($boot) { $boot->value = 'left'; $boot->list[] = 'left'; },
    'see' => fn ($boot) => json_encode($boot),
];
