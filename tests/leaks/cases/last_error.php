<?php
// error_get_last.
return [
    'set' => function () { @trigger_error('left'); },
    'see' => fn () => json_encode(error_get_last()['message'] ?? null),
];
