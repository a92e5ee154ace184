<?php
// A class that the autoloader from the boot loads in a request.
return [
    'boot' => function () { spl_autoload_register(function ($class) { if ($class === 'LeakAutoloaded') { require __DIR__ . '/../include/autoloaded.php'; } }); },
    'set' => function () { LeakAutoloaded::$value = 'left'; },
    'see' => fn () => var_export(class_exists('LeakAutoloaded', false), true),
];
