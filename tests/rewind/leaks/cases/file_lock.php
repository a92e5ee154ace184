<?php
// A lock on a file from the boot.
return [
    'boot' => fn () => fopen(LEAK_STATE . '/lock-' . getmypid() . '-' . mt_rand(), 'c'),
    'set' => function ($boot) { if (!flock($boot, LOCK_EX | LOCK_NB)) { throw new Exception('locked'); } },
    'see' => function ($boot) { $other = fopen(stream_get_meta_data($boot)['uri'], 'c'); return flock($other, LOCK_EX | LOCK_NB) ? 'free' : 'locked'; },
];
