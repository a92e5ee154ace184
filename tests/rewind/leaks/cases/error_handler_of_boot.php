<?php
// An error handler from the boot that a request restores.
return [
    'boot' => function () { $GLOBALS['leak_handler'] = fn () => false; },
    'set' => function () { set_error_handler($GLOBALS['leak_handler']); set_error_handler(fn () => false, E_NOTICE); },
    'see' => function () { $n = 0; while (set_error_handler(null) !== null && ++$n < 50) { restore_error_handler(); restore_error_handler(); } restore_error_handler(); return "$n handlers"; },
];
