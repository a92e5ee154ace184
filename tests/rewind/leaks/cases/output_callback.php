<?php
// An output callback.
return [
    'leaks' => false,
    'why' => 'the end of a request ends its buffers',
    'ends' => true,
    'set' => function () { ob_start(fn ($text) => strrev($text)); },
    'see' => fn () => 'straight',
];
