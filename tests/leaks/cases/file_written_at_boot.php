<?php
// A file that boot opened for writing, with what is not written yet.
return [
    'boot' => function () { $f = fopen(LEAK_STATE . '/written-' . getmypid(), 'w+'); fwrite($f, 'booted'); return $f; },
    'set' => function ($boot) { fseek($boot, 0, SEEK_END); },
    'see' => fn ($boot) => is_resource($boot) ? 'open' : 'closed',
    'leaks' => false,
    'why' => 'what is written to a file is written',
];
