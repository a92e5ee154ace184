<?php
// A caught signal with a handler that has not run yet.
return [
    'needs' => ['pcntl', 'posix'],
    'set' => function () { pcntl_async_signals(false); pcntl_signal(SIGUSR2, function () { $GLOBALS['leak_signal'] = 'left'; }); posix_kill(posix_getpid(), SIGUSR2); },
    'see' => function () { pcntl_signal_dispatch(); return $GLOBALS['leak_signal'] ?? 'none'; },
];
