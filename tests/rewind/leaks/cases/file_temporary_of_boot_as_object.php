<?php
// A temporary file from the boot, in an object.
return [
    'boot' => function () { $t = new SplTempFileObject(0); $t->fwrite('booted'); return $t; },
    'set' => function ($boot) { $boot->fseek(0); $boot->fwrite('secret'); },
    'see' => fn ($boot) => $boot->fseek(0) ?: $boot->fread(100),
];
