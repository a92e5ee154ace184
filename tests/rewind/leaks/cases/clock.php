<?php
// Clocks, which must continue.
return [
    'leaks' => false,
    'why' => 'the clocks are the kernel\'s',
    'set' => function () { file_put_contents(LEAK_STATE . '/clock', json_encode([hrtime(true), microtime(true)])); },
    'see' => function () { $before = json_decode((string) @file_get_contents(LEAK_STATE . '/clock')) ?? [0, 0]; return json_encode([hrtime(true) > $before[0], microtime(true) > $before[1]]); },
    'is' => '[true,true]',
];
