<?php
// A pending alarm.
return [
    'leaks' => false,
    'why' => 'the end of a request stops it',
    'needs' => ['pcntl'],
    'set' => function () { pcntl_signal(SIGALRM, SIG_IGN); pcntl_alarm(100); },
    'see' => fn () => ($n = pcntl_alarm(0)) > 0 ? 'an alarm' : 'none',
];
