<?php
// date.timezone.
return [
    'set' => function () { ini_set('date.timezone', 'Europe/Vienna'); },
    'see' => fn () => ini_get('date.timezone') . date('T', 0),
];
