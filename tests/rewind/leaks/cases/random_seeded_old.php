<?php
// srand and the legacy mode of mt_srand.
return [
    'leaks' => false,
    'why' => 'the end of a request forgets it',
    'set' => function () { mt_srand(42, MT_RAND_PHP); },
    'see' => function () { $a = [mt_rand(1, 1 << 30), mt_rand(1, 1 << 30)]; mt_srand(42, MT_RAND_PHP); $seeded = $a === [mt_rand(1, 1 << 30), mt_rand(1, 1 << 30)]; mt_srand(random_int(1, 1 << 30)); return $seeded ? 'seeded' : 'unknown'; },
];
