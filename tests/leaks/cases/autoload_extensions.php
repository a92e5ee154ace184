<?php
// The file names that spl_autoload tries.
return [
    'set' => function () { spl_autoload_extensions('.left'); },
    'see' => fn () => spl_autoload_extensions(),
];
