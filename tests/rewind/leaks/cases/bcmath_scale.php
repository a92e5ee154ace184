<?php
// bcscale.
return [
    'needs' => ['bcmath'],
    'set' => function () { bcscale(9); },
    'see' => fn () => bcdiv('1', '3'),
];
