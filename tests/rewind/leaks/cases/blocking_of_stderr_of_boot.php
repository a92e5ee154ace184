<?php
// The kernel's blocking mode of a stderr that the boot opened.
return [
    'boot' => function () {
        $leading_there = fn () => array_filter(scandir('/proc/self/fd'), fn ($fd) => @readlink("/proc/self/fd/$fd") === readlink('/proc/self/fd/2'));
        $before = $leading_there();
        return [fopen('php://stderr', 'w'), ...array_diff($leading_there(), $before)];
    },
    'set' => function ($boot) { stream_set_blocking($boot[0], false); },
    'see' => fn ($boot) => file("/proc/self/fdinfo/$boot[1]")[1],
];
