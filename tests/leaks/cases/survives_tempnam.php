<?php
// A file of tempnam's, which nobody removes but who made it.
return [
    'survives' => 'files are not memory',
    'set' => function () { tempnam(LEAK_STATE, 'leaktemp'); },
    'see' => fn () => count(glob(LEAK_STATE . '/leaktemp*')) . '',
];
