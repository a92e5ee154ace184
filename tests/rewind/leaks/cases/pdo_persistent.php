<?php
// A persistent PDO connection.
return [
    'needs' => ['pdo_sqlite'],
    'set' => function () { $d = new PDO('sqlite::memory:', null, null, [PDO::ATTR_PERSISTENT => true]); $d->exec('create table if not exists leaked (a)'); },
    'see' => function () { $d = new PDO('sqlite::memory:', null, null, [PDO::ATTR_PERSISTENT => true]); return json_encode($d->query("select count(*) from sqlite_master where name = 'leaked'")->fetchColumn()); },
];
