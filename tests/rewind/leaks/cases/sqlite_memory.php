<?php
// An SQLite database in memory, from the boot.
return [
    'heavy' => true,
    'needs' => ['sqlite3'],
    'boot' => function () { $d = new SQLite3(':memory:'); $d->exec('create table t (a)'); return $d; },
    'set' => function ($boot) { for ($i = 0; $i < 1000; $i++) { $boot->exec('insert into t values (randomblob(500))'); } $boot->createFunction('left_over', fn () => 1); },
    'see' => fn ($boot) => $boot->querySingle('select count(*) from t') . json_encode(@$boot->querySingle('select left_over()')),
];
