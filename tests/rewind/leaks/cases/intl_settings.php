<?php
// intl's error reporting.
return [
    'needs' => ['intl'],
    'set' => function () { ini_set('intl.error_level', '2'); ini_set('intl.use_exceptions', '1'); },
    'see' => fn () => ini_get('intl.error_level') . '/' . ini_get('intl.use_exceptions'),
];
