<?php
// The data of a session, available to every request with its id.
return [
    'needs' => ['session'],
    'survives' => 'sessions are files',
    'set' => function () { session_save_path(LEAK_STATE); session_id('survives'); session_start(['use_cookies' => 0]); $_SESSION['left'] = 'left'; },
    'see' => function () { session_save_path(LEAK_STATE); session_id('survives'); session_start(['use_cookies' => 0, 'read_and_close' => true]); return json_encode($_SESSION); },
];
