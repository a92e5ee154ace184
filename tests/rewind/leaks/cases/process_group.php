<?php
// The process's group and session.
return [
    'needs' => ['posix'],
    'set' => function () { posix_setpgid(0, 0); posix_setsid(); },
    'see' => fn () => json_encode([posix_getpgrp() === posix_getpid(), posix_getsid(0) === posix_getpid()]),
];
