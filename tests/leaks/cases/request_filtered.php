<?php
// What filter_input knows of the request before.
return [
    'needs' => ['filter'],
    'leaks' => false,
    'why' => 'every request has variables of its own',
    'send' => ['headers' => ['cookie' => 'left=left'], 'query' => 'left=left'],
    'set' => function () { if (filter_input(INPUT_GET, 'left') !== 'left') { throw new Exception('nothing came'); } },
    'see' => fn () => json_encode([filter_input(INPUT_GET, 'left'), filter_input(INPUT_COOKIE, 'left')]),
];
