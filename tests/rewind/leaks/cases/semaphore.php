<?php
// A semaphore that a request took and did not release.
return [
    'needs' => ['sysvsem'],
    'set' => function () { $GLOBALS['leak_semaphore'] = sem_get(ftok(__FILE__, 's')); sem_acquire($GLOBALS['leak_semaphore'], true) || throw new Exception('taken'); },
    'see' => function () { $s = sem_get(ftok(__FILE__, 's')); if (!sem_acquire($s, true)) { return 'taken'; } sem_release($s); return 'free'; },
    'clean' => function () { sem_remove(sem_get(ftok(__FILE__, 's'))); },
];
