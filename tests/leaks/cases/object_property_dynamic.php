<?php
// A property that an object made at boot did not have.
return [
    'boot' => fn () => new stdClass,
    'set' => function ($boot) { $boot->left = 'left'; },
    'see' => fn ($boot) => json_encode($boot),
];
