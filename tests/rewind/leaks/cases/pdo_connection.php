<?php
// A PDO connection from the boot: attributes, a transaction.
return [
    'needs' => ['pdo_sqlite'],
    'boot' => fn () => new PDO('sqlite::memory:'),
    'set' => function ($boot) { $boot->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_SILENT); $boot->beginTransaction(); },
    'see' => fn ($boot) => json_encode([$boot->getAttribute(PDO::ATTR_ERRMODE), $boot->inTransaction()]),
];
