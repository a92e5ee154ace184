<?php
// An output callback that throws at the end of the request.
return [
    'leaks' => false,
    'why' => 'the end of a request ends its buffers',
    'ends' => true,
    'set' => function () { ob_start(function () { throw new Exception('left'); }); echo 'text'; },
    'see' => fn () => ob_get_level() . 'fine',
];
