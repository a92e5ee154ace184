<?php
// mbstring's regular expressions: encoding, options, an unfinished search.
return [
    'needs' => ['mbstring'],
    'set' => function () { mb_ereg_search_init('left over', '\w+'); mb_ereg_search(); mb_regex_encoding('EUC-JP'); mb_regex_set_options('x'); },
    'see' => fn () => json_encode([mb_regex_encoding(), mb_regex_set_options(), mb_ereg_search_getpos(), mb_ereg_search_getregs()]),
];
