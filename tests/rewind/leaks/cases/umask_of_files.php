<?php
// The permissions of a file that a later request creates.
return [
    'leaks' => false,
    'why' => 'the end of a request puts it back',
    'set' => function () { umask(0377); },
    'see' => function () { $f = LEAK_STATE . '/rights'; @unlink($f); touch($f); clearstatcache(); return decoct(fileperms($f)); },
];
