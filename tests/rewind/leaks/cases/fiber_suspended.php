<?php
// A fiber that a request starts and leaves suspended in a variable from the boot.
return [
    'boot' => fn () => (object) ['fiber' => null],
    'set' => function ($boot) { $boot->fiber = new Fiber(function () { $x = str_repeat('x', 10000); Fiber::suspend('left'); }); $boot->fiber->start(); },
    'see' => fn ($boot) => $boot->fiber?->isSuspended() ? 'suspended' : 'none',
];
