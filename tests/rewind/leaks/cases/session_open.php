<?php
// An open session.
return [
    'needs' => ['session'],
    'leaks' => false,
    'why' => 'the end of a request writes and closes it',
    'set' => function () { session_save_path(LEAK_STATE); session_start(['use_cookies' => 0]); $_SESSION['left'] = 'left'; },
    'see' => fn () => session_status() . json_encode($_SESSION ?? null),
];
