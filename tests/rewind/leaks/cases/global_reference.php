<?php
// A global variable from the boot that became a reference to something else.
return [
    'boot' => function () { $GLOBALS['leak_ref_a'] = 'a'; $GLOBALS['leak_ref_b'] = 'b'; },
    'set' => function () { $a = &$GLOBALS['leak_ref_a']; $GLOBALS['leak_ref_b'] = 'left'; (function (&$x, &$y) { $x = &$y; })($a, $GLOBALS['leak_ref_b']); $GLOBALS['leak_ref_a'] = 'left'; },
    'see' => fn () => $GLOBALS['leak_ref_a'] . $GLOBALS['leak_ref_b'],
];
