<?php
// libxml's collected errors.
return [
    'needs' => ['dom'],
    'leaks' => false,
    'why' => 'the end of a request frees its errors',
    'set' => function () { libxml_use_internal_errors(true); (new DOMDocument)->loadXML('<left'); },
    'see' => fn () => count(libxml_get_errors()) . json_encode(libxml_get_last_error()) . ini_get('html_errors'),
];
