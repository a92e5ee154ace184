<?php
// A file from the boot without a name (unlinked).
return [
    'boot' => function () { $t = fopen($path = LEAK_STATE . '/unlinked-' . getmypid(), 'w+'); unlink($path); fwrite($t, 'booted'); return $t; },
    'set' => function ($boot) { fseek($boot, 0); fwrite($boot, 'secret'); },
    'see' => fn ($boot) => fseek($boot, 0) ?: stream_get_contents($boot),
];
