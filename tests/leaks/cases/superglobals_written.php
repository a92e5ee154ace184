<?php
// $_GET, $_POST, $_COOKIE, $_REQUEST and $_FILES that a script changed.
return [
    'leaks' => false,
    'why' => 'every request has superglobals of its own',
    'set' => function () { $_GET['left'] = $_POST['left'] = $_COOKIE['left'] = $_REQUEST['left'] = $_FILES['left'] = 'left'; },
    'see' => fn () => json_encode([$_POST, $_COOKIE, $_FILES, isset($_GET['left']), isset($_REQUEST['left'])]),
];
