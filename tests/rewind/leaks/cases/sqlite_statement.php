<?php
// A prepared statement from the boot: its bound values and its position.
return [
    'needs' => ['pdo_sqlite'],
    'boot' => function () { $d = new PDO('sqlite::memory:'); $d->exec('create table t (a)'); $d->exec("insert into t values ('a'),('b'),('c')"); $s = $d->prepare('select a from t where a > ? order by a'); $s->execute(['']); return [$d, $s]; },
    'set' => function ($boot) { $boot[1]->fetchColumn(); $boot[1]->setFetchMode(PDO::FETCH_NUM); },
    'see' => fn ($boot) => json_encode($boot[1]->fetchAll()),
];
