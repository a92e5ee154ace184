<?php
// Number formatting in another locale.
return [
    'set' => function () { setlocale(LC_NUMERIC, 'de_DE.UTF-8', 'de_DE', 'fr_FR.UTF-8') ?: setlocale(LC_TIME, 'C.UTF-8', 'POSIX'); },
    'see' => fn () => setlocale(LC_NUMERIC, 0) . setlocale(LC_TIME, 0) . localeconv()['decimal_point'] . sprintf('%.1f', 0.5),
];
