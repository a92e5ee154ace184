<?php
// A hash from the boot that a request feeds.
return [
    'boot' => fn () => hash_init('sha256'),
    'set' => function ($boot) { hash_update($boot, 'left'); },
    'see' => fn ($boot) => hash_final(hash_copy($boot)),
];
