<?php
// exit() within nested output buffers while an object from the boot is half changed.
return [
    'ends' => true,
    'boot' => fn () => (object) ['a' => 1, 'b' => 1],
    'set' => function ($boot) { ob_start(); ob_start(fn ($t) => strtoupper($t)); $boot->a = 2; echo 'text'; exit(3); },
    'see' => fn ($boot) => ob_get_level() . json_encode($boot),
];
