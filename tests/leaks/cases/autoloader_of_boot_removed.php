<?php
// An autoloader of boot that a request takes away.
return [
    'boot' => function () { $loader = function ($class) {}; spl_autoload_register($loader); return $loader; },
    'set' => function ($boot) { spl_autoload_unregister($boot); },
    'see' => fn ($boot) => var_export(in_array($boot, spl_autoload_functions(), true), true),
];
