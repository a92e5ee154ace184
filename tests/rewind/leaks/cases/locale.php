<?php
// setlocale.
return [
    'set' => function () { if (!setlocale(LC_ALL, setlocale(LC_CTYPE, 0) === 'C.UTF-8' ? 'C' : 'C.UTF-8')) { throw new Exception('there is no such locale'); } },
    'see' => fn () => setlocale(LC_ALL, 0),
];
