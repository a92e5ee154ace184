<?php
// filter_input's copy of the previous request.
return [
    'needs' => ['filter'],
    'leaks' => false,
    'why' => 'every request has its own variables',
    'send' => ['headers' => ['cookie' => 'left=left'], 'query' => 'left=left'],
    'set' => function () { if (filter_input(INPUT_GET, 'left') !== 'left') { throw new Exception('nothing came'); } },
    'see' => fn () => json_encode([filter_input(INPUT_GET, 'left'), filter_input(INPUT_COOKIE, 'left')]),
];
