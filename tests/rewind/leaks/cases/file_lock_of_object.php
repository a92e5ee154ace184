<?php
// A lock on a file from the boot, held by an object.
return [
    'boot' => fn () => new SplFileObject(LEAK_STATE . '/lock-object-' . getmypid() . '-' . mt_rand(), 'c'),
    'set' => function ($boot) { if (!$boot->flock(LOCK_EX | LOCK_NB)) { throw new Exception('locked'); } },
    'see' => function ($boot) { $other = fopen($boot->getPathname(), 'c'); return flock($other, LOCK_EX | LOCK_NB) ? 'free' : 'locked'; },
];
