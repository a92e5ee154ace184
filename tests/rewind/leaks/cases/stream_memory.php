<?php
// A php://memory and a php://temp from the boot: their content and position.
return [
    'boot' => function () { $m = fopen('php://memory', 'w+'); fwrite($m, 'booted'); rewind($m); $t = fopen('php://temp', 'w+'); fwrite($t, 'booted'); rewind($t); return [$m, $t]; },
    'set' => function ($boot) { fread($boot[0], 2); fwrite($boot[1], 'LEFT'); },
    'see' => fn ($boot) => ftell($boot[0]) . ftell($boot[1]) . json_encode(fstat($boot[1])['size']),
];
