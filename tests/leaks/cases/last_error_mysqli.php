<?php
// The last failure to connect to MySQL, and how mysqli reports.
return [
    'needs' => ['mysqli'],
    'set' => function () { mysqli_report(MYSQLI_REPORT_OFF); @mysqli_connect('localhost', 'left', '', '', 0, '/nonexistent'); },
    'see' => fn () => mysqli_connect_errno() . '/' . (new mysqli_driver)->report_mode,
];
