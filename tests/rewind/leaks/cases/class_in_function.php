<?php
// A function from the boot looks up a class name: its cached result must not survive the request.
function leak_class_in_function() { return (new LeakClassInFunction)->say() . LeakClassInFunction::NAME . LeakClassInFunction::$static; }
return [
    'leaks' => false,
    'why' => 'the first request declares it for all',
    'set' => function () { class_exists('LeakClassInFunction') || eval('class LeakClassInFunction { public $pad1, $pad2; const NAME = "left"; static $static = "left"; function pad() {} function say() { return "left"; } }'); leak_class_in_function(); },
    'see' => function () { class_exists('LeakClassInFunction') || eval('class LeakClassInFunction { static $static = "seen"; const NAME = "seen"; function say() { return "seen"; } }'); return leak_class_in_function(); },
];
