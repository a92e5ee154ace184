<?php
// A constant in a namespace.
return [
    'set' => function () { define('Leak\Space\VALUE', 'left'); },
    'see' => fn () => defined('Leak\Space\VALUE') ? constant('Leak\Space\VALUE') : 'none',
];
