<?php
// The flags of a finfo from the boot.
return [
    'needs' => ['fileinfo'],
    'boot' => fn () => new finfo(FILEINFO_MIME_TYPE),
    'set' => function ($boot) { $boot->set_flags(FILEINFO_MIME_ENCODING); },
    'see' => fn ($boot) => $boot->buffer('text'),
];
