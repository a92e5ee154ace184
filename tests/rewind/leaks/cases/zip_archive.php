<?php
// An archive that the boot opened.
return [
    'needs' => ['zip'],
    'boot' => function () { $z = new ZipArchive; $z->open(LEAK_STATE . '/zip-' . getmypid() . '-' . bin2hex(random_bytes(4)), ZipArchive::CREATE); $z->addFromString('booted', 'booted'); return $z; },
    'set' => function ($boot) { $boot->addFromString('left', 'left'); },
    'see' => fn ($boot) => $boot->numFiles . '',
];
