<?php
// A global variable from the boot that a request unsets.
return [
    'boot' => function () { $GLOBALS['leak_global_unset'] = 'booted'; },
    'set' => function () { unset($GLOBALS['leak_global_unset']); },
    'see' => fn () => $GLOBALS['leak_global_unset'] ?? 'gone',
];
