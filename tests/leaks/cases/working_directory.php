<?php
// chdir.
return [
    'set' => function () { chdir('/'); },
    'see' => fn () => getcwd(),
];
