<?php
// The conversion of numbers to text: precision, serialize_precision.
return [
    'set' => function () { ini_set('precision', '3'); ini_set('serialize_precision', '5'); },
    'see' => fn () => 1 / 3 . ' ' . json_encode(1 / 3) . ' ' . var_export(0.1, true),
];
