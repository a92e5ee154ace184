<?php
// An open transaction on a database file, with its lock.
return [
    'needs' => ['pdo_sqlite', 'sqlite3'],
    'set' => function () { $GLOBALS['leak_pdo'] = new PDO('sqlite:' . LEAK_STATE . '/db'); $GLOBALS['leak_pdo']->exec('create table if not exists t (a); begin exclusive'); },
    'see' => function () { $d = new PDO('sqlite:' . LEAK_STATE . '/db', null, null, [PDO::ATTR_TIMEOUT => 0]); try { $d->exec('begin immediate; rollback'); return 'free'; } catch (PDOException) { return 'locked'; } },
];
