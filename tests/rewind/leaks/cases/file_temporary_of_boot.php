<?php
// A tmpfile() from the boot.
return [
    'boot' => function () { $t = tmpfile(); fwrite($t, 'booted'); return $t; },
    'set' => function ($boot) { fseek($boot, 0); fwrite($boot, 'secret'); },
    'see' => fn ($boot) => fseek($boot, 0) ?: stream_get_contents($boot),
];
