<?php
// Blocked signals.
return [
    'needs' => ['pcntl'],
    'set' => function () { pcntl_sigprocmask(SIG_BLOCK, [SIGUSR2, SIGTERM]); },
    'see' => fn () => implode(preg_grep('/^SigBlk/', file('/proc/self/status', FILE_IGNORE_NEW_LINES))),
];
