<?php
// A global variable that was there at boot and is gone.
return [
    'boot' => function () { $GLOBALS['leak_global_unset'] = 'booted'; },
    'set' => function () { unset($GLOBALS['leak_global_unset']); },
    'see' => fn () => $GLOBALS['leak_global_unset'] ?? 'gone',
];
