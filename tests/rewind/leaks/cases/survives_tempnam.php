<?php
// A file from tempnam, which only its creator removes.
return [
    'survives' => 'files are not memory',
    'set' => function () { tempnam(LEAK_STATE, 'leaktemp'); },
    'see' => fn () => count(glob(LEAK_STATE . '/leaktemp*')) . '',
];
