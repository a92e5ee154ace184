<?php
// ob_implicit_flush.
return [
    'leaks' => false,
    'why' => 'it is of the output layer, which begins anew',
    'set' => function () { ob_implicit_flush(true); },
    'see' => fn () => json_encode(ob_get_status(true)),
];
