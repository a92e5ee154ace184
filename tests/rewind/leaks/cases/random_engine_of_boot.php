<?php
// A seeded random engine from the boot that a request advances.
return [
    'boot' => fn () => new Random\Engine\Mt19937(5),
    'set' => function ($boot) { $boot->generate(); },
    'see' => fn ($boot) => bin2hex((clone $boot)->generate()),
];
