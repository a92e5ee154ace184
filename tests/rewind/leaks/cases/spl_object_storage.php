<?php
// Objects attached to an SplObjectStorage from the boot.
return [
    'boot' => function () { $s = new SplObjectStorage; $s[new stdClass] = 'booted'; return $s; },
    'set' => function ($boot) { $boot[new stdClass] = 'left'; },
    'see' => fn ($boot) => (string) count($boot),
];
