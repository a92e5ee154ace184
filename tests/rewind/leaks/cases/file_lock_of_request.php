<?php
// A lock on a file that a request opened and left open.
return [
    'set' => function () { $GLOBALS['leak_lock'] = fopen(LEAK_STATE . '/lock', 'c'); if (!flock($GLOBALS['leak_lock'], LOCK_EX | LOCK_NB)) { throw new Exception('locked'); } },
    'see' => function () { $other = fopen(LEAK_STATE . '/lock', 'c'); return flock($other, LOCK_EX | LOCK_NB) ? 'free' : 'locked'; },
];
