<?php
// ob_implicit_flush.
return [
    'leaks' => false,
    'why' => 'the output layer is reset for every request',
    'set' => function () { ob_implicit_flush(true); },
    'see' => fn () => json_encode(ob_get_status(true)),
];
