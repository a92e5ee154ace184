<?php
// set_time_limit.
return [
    'set' => function () { set_time_limit(17); },
    'see' => fn () => ini_get('max_execution_time'),
];
