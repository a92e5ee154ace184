<?php
// mbstring's settings.
return [
    'needs' => ['mbstring'],
    'set' => function () { ini_set('mbstring.language', 'Japanese'); ini_set('mbstring.substitute_character', 'none'); ini_set('mbstring.strict_detection', '1'); ini_set('mbstring.regex_stack_limit', '9'); },
    'see' => fn () => json_encode(array_map('ini_get', ['mbstring.language', 'mbstring.substitute_character', 'mbstring.strict_detection', 'mbstring.regex_stack_limit'])) . mb_language(),
];
