<?php
// The action for a signal.
return [
    'needs' => ['pcntl'],
    'set' => function () { pcntl_signal(SIGUSR2, function () {}); pcntl_signal(SIGWINCH, SIG_IGN); },
    'see' => fn () => implode(' ', preg_grep('/^Sig(Ign|Cgt)/', file('/proc/self/status', FILE_IGNORE_NEW_LINES))) . json_encode(is_object(pcntl_signal_get_handler(SIGUSR2))),
];
