<?php
// A static variable of a closure made at boot.
return [
    'boot' => fn () => function (?string $value = null) {
        static $kept = 'booted';
        return $kept = $value ?? $kept;
    },
    'set' => function ($boot) { $boot('left'); },
    'see' => fn ($boot) => $boot(),
];
