<?php
// APCu: shared memory that applications expect to persist.
return [
    'needs' => ['apcu'],
    'survives' => 'it is a cache for all requests',
    'set' => function () { apcu_store('leak', 'left'); },
    'see' => fn () => json_encode(apcu_fetch('leak')),
];
