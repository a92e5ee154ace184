<?php
// A function from the boot looks up a function: its cached result must not survive the request.
function leak_function_in_function() { return leak_declared_for_function(); }
return [
    'leaks' => false,
    'why' => 'the first request declares it for all',
    'set' => function () { function_exists('leak_declared_for_function') || eval('function leak_declared_for_function() { return "left"; }'); leak_function_in_function(); },
    'see' => function () { function_exists('leak_declared_for_function') || eval('function leak_declared_for_function() { static $n = "seen"; return $n; }'); return leak_function_in_function(); },
];
