<?php
// mysqli's last connection error and its reporting mode.
return [
    'needs' => ['mysqli'],
    'set' => function () { mysqli_report(MYSQLI_REPORT_OFF); @mysqli_connect('localhost', 'left', '', '', 0, '/nonexistent'); },
    'see' => fn () => mysqli_connect_errno() . '/' . (new mysqli_driver)->report_mode,
];
