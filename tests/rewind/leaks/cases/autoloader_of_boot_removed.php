<?php
// An autoloader from the boot that a request removes.
return [
    'boot' => function () { $loader = function ($class) {}; spl_autoload_register($loader); return $loader; },
    'set' => function ($boot) { spl_autoload_unregister($boot); },
    'see' => fn ($boot) => var_export(in_array($boot, spl_autoload_functions(), true), true),
];
