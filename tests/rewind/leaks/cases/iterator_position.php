<?php
// The position of an iterator from the boot.
return [
    'boot' => fn () => new ArrayIterator(['a', 'b', 'c']),
    'set' => function ($boot) { $boot->next(); },
    'see' => fn ($boot) => $boot->current(),
];
