<?php
// A semaphore from the boot that a request took and did not release.
return [
    'needs' => ['sysvsem'],
    'boot' => fn () => sem_get(ftok(LEAK_STATE, 'b')),
    'set' => function ($boot) { sem_acquire($boot, true) || throw new Exception('taken'); },
    'see' => function ($boot) { if (!sem_acquire($boot, true)) { return 'taken'; } sem_release($boot); return 'free'; },
    'clean' => function ($boot) { sem_remove($boot); },
];
