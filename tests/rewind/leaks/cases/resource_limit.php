<?php
// The process's limits.
return [
    'needs' => ['posix'],
    'set' => function () { $l = posix_getrlimit(); posix_setrlimit(POSIX_RLIMIT_CORE, 0, (int) $l['hard core']); posix_setrlimit(POSIX_RLIMIT_NOFILE, $l['soft openfiles'] - 1, $l['hard openfiles']) || throw new Exception('not set'); },
    'see' => fn () => json_encode(posix_getrlimit()),
];
