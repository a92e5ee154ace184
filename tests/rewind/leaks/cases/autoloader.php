<?php
// An autoloader that a request registers.
return [
    'set' => function () { spl_autoload_register(function ($class) { if ($class === 'LeakAutoloader') { eval('class LeakAutoloader {}'); } }); },
    'see' => fn () => count(spl_autoload_functions()) . var_export(class_exists('LeakAutoloader'), true),
];
