<?php
// mt_srand: the next request's numbers are not those of the seed.
return [
    'leaks' => true,
    'set' => function () { mt_srand(42); },
    'see' => fn () => mt_rand() === 804318771 ? 'seeded' : 'unknown',
    'is' => 'unknown',
];
