<?php
// Whether a script goes on without its client.
return [
    'set' => function () { ignore_user_abort(true); },
    'see' => fn () => ignore_user_abort() . '/' . connection_status(),
];
