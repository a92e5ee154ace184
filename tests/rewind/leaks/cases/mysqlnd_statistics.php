<?php
// mysqlnd's counters.
return [
    'needs' => ['mysqli'],
    'set' => function () { mysqli_report(MYSQLI_REPORT_OFF); @mysqli_connect('localhost', 'left', '', '', 0, '/nonexistent'); },
    'see' => fn () => mysqli_get_client_stats()['connect_failure'],
];
