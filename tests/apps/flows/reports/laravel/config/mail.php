<?php

return [
    'default' => 'sendmail',
    'mailers' => ['sendmail' => ['transport' => 'sendmail', 'path' => base_path('bin/sendmail').' -t']],
    'from' => ['address' => 'reports@example.org', 'name' => 'Reports'],
];
