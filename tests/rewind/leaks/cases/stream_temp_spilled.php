<?php
// A php://temp from the boot that a request fills until it spills into a file.
return [
    'boot' => function () { $t = fopen('php://temp/maxmemory:1000', 'w+'); fwrite($t, 'booted'); return $t; },
    'set' => function ($boot) { fwrite($boot, str_repeat('x', 5000)); },
    'see' => fn ($boot) => (string) fstat($boot)['size'],
];
