<?php
// What a function of boot has found under the name of a function is not what it finds in the next request.
function leak_function_in_function() { return leak_declared_for_function(); }
return [
    'leaks' => false,
    'why' => 'the first request declares it for all',
    'set' => function () { function_exists('leak_declared_for_function') || eval('function leak_declared_for_function() { return "left"; }'); leak_function_in_function(); },
    'see' => function () { function_exists('leak_declared_for_function') || eval('function leak_declared_for_function() { static $n = "seen"; return $n; }'); return leak_function_in_function(); },
];
