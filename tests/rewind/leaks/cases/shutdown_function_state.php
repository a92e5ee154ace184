<?php
// State that a shutdown function leaves: it runs after everything else.
return [
    'set' => function () { register_shutdown_function(function () { $GLOBALS['leak_shutdown'] = 'left'; register_shutdown_function(function () { $GLOBALS['leak_shutdown'] .= ' twice'; }); }); },
    'see' => fn () => $GLOBALS['leak_shutdown'] ?? 'none',
];
