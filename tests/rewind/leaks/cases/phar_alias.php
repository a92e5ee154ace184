<?php
// An archive that is open under an alias.
return [
    'needs' => ['Phar'],
    'set' => function () { $f = LEAK_STATE . '/leak.tar'; if (!is_file($f)) { (new PharData($f))->addFromString('a', 'a'); } $GLOBALS['leak_phar'] = new PharData($f, 0, 'leakalias'); },
    'see' => fn () => var_export(@file_exists('phar://leakalias/a'), true),
];
