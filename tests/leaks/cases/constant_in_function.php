<?php
// What a function of boot has found under the name of a constant is not what it finds in the next request.
function leak_constant_in_function() { return LEAK_CONSTANT_IN_FUNCTION; }
return [
    'leaks' => false,
    'why' => 'the first request defines it for all',
    'set' => function () { defined('LEAK_CONSTANT_IN_FUNCTION') || define('LEAK_CONSTANT_IN_FUNCTION', 'left'); leak_constant_in_function(); },
    'see' => function () { defined('LEAK_CONSTANT_IN_FUNCTION') || define('LEAK_CONSTANT_IN_FUNCTION', 'seen'); return leak_constant_in_function(); },
];
