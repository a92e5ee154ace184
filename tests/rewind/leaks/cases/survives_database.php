<?php
// A database.
return [
    'needs' => ['sqlite3'],
    'survives' => 'it is a file',
    'set' => function () { $d = new SQLite3(LEAK_STATE . '/survives.db'); $d->exec('create table t (a)'); },
    'see' => function () { $d = new SQLite3(LEAK_STATE . '/survives.db'); return json_encode($d->querySingle("select name from sqlite_master")); },
];
