<?php
// A global variable.
return [
    'set' => function () { $GLOBALS['leak_global'] = 'left'; },
    'see' => fn () => $GLOBALS['leak_global'] ?? 'none',
];
