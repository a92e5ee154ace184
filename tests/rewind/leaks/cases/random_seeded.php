<?php
// mt_srand: the next request must not continue the seeded sequence.
return [
    'leaks' => false,
    'why' => 'the end of a request forgets it',
    'set' => function () { mt_srand(42); },
    'see' => fn () => mt_rand() === 804318771 ? 'seeded' : 'unknown',
    'is' => 'unknown',
];
