<?php
// An environment variable that the boot set.
return [
    'boot' => function () { putenv('LEAK_ENV_OF_BOOT=booted'); },
    'set' => function () { putenv('LEAK_ENV_OF_BOOT=left'); putenv('PATH'); },
    'see' => fn () => getenv('LEAK_ENV_OF_BOOT') . var_export(getenv('PATH'), true),
];
