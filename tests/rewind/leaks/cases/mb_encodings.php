<?php
// mbstring's encodings, language and substitute character.
return [
    'needs' => ['mbstring'],
    'set' => function () { mb_internal_encoding('EUC-JP'); mb_http_output('SJIS'); mb_language('Japanese'); mb_substitute_character(0x3f + 1); },
    'see' => fn () => json_encode([mb_internal_encoding(), mb_http_output(), mb_http_input(), mb_language(), mb_substitute_character()]),
];
