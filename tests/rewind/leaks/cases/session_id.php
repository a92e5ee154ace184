<?php
// The session's id and name.
return [
    'needs' => ['session'],
    'set' => function () { session_id('left'); session_name('LEFT'); },
    'see' => fn () => session_id() . '/' . session_name(),
];
