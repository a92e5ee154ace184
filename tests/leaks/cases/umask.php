<?php
// umask.
return [
    'set' => function () { umask(0777); },
    'see' => fn () => decoct(umask()),
];
