<?php
// error_reporting.
return [
    'set' => function () { error_reporting(E_ERROR); },
    'see' => fn () => error_reporting() . ' ' . ini_get('error_reporting'),
];
