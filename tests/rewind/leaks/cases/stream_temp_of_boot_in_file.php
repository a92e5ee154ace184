<?php
// A php://temp from the boot that has spilled into a file.
return [
    'boot' => function () { $t = fopen('php://temp/maxmemory:0', 'w+'); fwrite($t, 'booted'); return $t; },
    'set' => function ($boot) { fseek($boot, 0); fwrite($boot, 'secret'); },
    'see' => fn ($boot) => fseek($boot, 0) ?: stream_get_contents($boot),
];
