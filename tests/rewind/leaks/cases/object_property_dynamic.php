<?php
// A new dynamic property of an object from the boot.
return [
    'boot' => fn () => new stdClass,
    'set' => function ($boot) { $boot->left = 'left'; },
    'see' => fn ($boot) => json_encode($boot),
];
