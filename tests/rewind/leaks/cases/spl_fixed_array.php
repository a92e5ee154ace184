<?php
// An SplFixedArray from the boot.
return [
    'boot' => fn () => SplFixedArray::fromArray(['booted']),
    'set' => function ($boot) { $boot[0] = 'left'; $boot->setSize(7); },
    'see' => fn ($boot) => $boot[0] . $boot->getSize(),
];
