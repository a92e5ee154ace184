<?php
// A global variable from the boot with another value.
return [
    'boot' => function () { $GLOBALS['leak_global_of_boot'] = 'booted'; },
    'set' => function () { $GLOBALS['leak_global_of_boot'] = 'left'; },
    'see' => fn () => $GLOBALS['leak_global_of_boot'],
];
