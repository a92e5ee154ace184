<?php
// A function from the boot looks up a constant: its cached result must not survive the request.
function leak_constant_in_function() { return LEAK_CONSTANT_IN_FUNCTION; }
return [
    'leaks' => false,
    'why' => 'the first request defines it for all',
    'set' => function () { defined('LEAK_CONSTANT_IN_FUNCTION') || define('LEAK_CONSTANT_IN_FUNCTION', 'left'); leak_constant_in_function(); },
    'see' => function () { defined('LEAK_CONSTANT_IN_FUNCTION') || define('LEAK_CONSTANT_IN_FUNCTION', 'seen'); return leak_constant_in_function(); },
];
