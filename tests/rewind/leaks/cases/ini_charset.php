<?php
// default_charset and the resulting content type.
return [
    'set' => function () { ini_set('default_charset', 'ISO-8859-1'); ini_set('default_mimetype', 'text/left'); ini_set('internal_encoding', 'ISO-8859-1'); },
    'see' => fn () => ini_get('default_charset') . ini_get('default_mimetype') . htmlspecialchars("a\xc3") . '|' . mb_strlen("\u{e4}"),
    'needs' => ['mbstring'],
];
