<?php
// The process's priority.
return [
    'needs' => ['pcntl'],
    'set' => function () { pcntl_setpriority(min(19, pcntl_getpriority() + 1)); },
    'see' => fn () => (string) pcntl_getpriority(),
];
