<?php
// The setting by which a script continues after its client has disconnected.
return [
    'set' => function () { ignore_user_abort(true); },
    'see' => fn () => ignore_user_abort() . '/' . connection_status(),
];
