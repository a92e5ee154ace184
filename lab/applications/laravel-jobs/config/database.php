<?php

return [
    'default' => 'jobs',
    'connections' => ['jobs' => ['driver' => 'sqlite', 'database' => getenv('DATABASE'), 'prefix' => '']],
];
