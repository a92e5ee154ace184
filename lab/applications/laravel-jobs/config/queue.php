<?php

return [
    'default' => 'jobs',
    'connections' => ['jobs' => ['driver' => 'database', 'table' => 'jobs', 'queue' => 'default', 'retry_after' => 90]],
    'failed' => ['driver' => 'database-uuids', 'database' => 'jobs', 'table' => 'failed_jobs'],
];
