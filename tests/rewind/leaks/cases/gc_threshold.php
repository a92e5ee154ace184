<?php
// The garbage collector's threshold, which grows with many live objects, and its number of runs.
return [
    'heavy' => true,
    'set' => function () { for ($i = 0; $i < 30000; $i++) { $a = new stdClass; $a->self = $a; $GLOBALS['leak_alive'][] = $a; } gc_collect_cycles(); },
    'see' => fn () => gc_status()['runs'] . '/' . gc_status()['threshold'],
];
