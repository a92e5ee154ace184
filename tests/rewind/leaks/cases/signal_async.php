<?php
// pcntl_async_signals.
return [
    'needs' => ['pcntl'],
    'set' => function () { pcntl_async_signals(true); },
    'see' => fn () => var_export(pcntl_async_signals(), true),
];
