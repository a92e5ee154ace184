<?php
// The file extensions of spl_autoload.
return [
    'set' => function () { spl_autoload_extensions('.left'); },
    'see' => fn () => spl_autoload_extensions(),
];
