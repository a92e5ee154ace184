<?php
// A file that the boot opened for writing, with buffered data.
return [
    'boot' => function () { $f = fopen(LEAK_STATE . '/written-' . getmypid(), 'w+'); fwrite($f, 'booted'); return $f; },
    'set' => function ($boot) { fseek($boot, 0, SEEK_END); },
    'see' => fn ($boot) => is_resource($boot) ? 'open' : 'closed',
    'leaks' => false,
    'why' => 'what is written to a file is written',
];
