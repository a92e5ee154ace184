<?php
// Where an iterator of boot stands.
return [
    'boot' => fn () => new ArrayIterator(['a', 'b', 'c']),
    'set' => function ($boot) { $boot->next(); },
    'see' => fn ($boot) => $boot->current(),
];
