<?php
// $_GET, $_POST, $_COOKIE, $_REQUEST and $_FILES after a script changed them.
return [
    'leaks' => false,
    'why' => 'every request has its own superglobals',
    'set' => function () { $_GET['left'] = $_POST['left'] = $_COOKIE['left'] = $_REQUEST['left'] = $_FILES['left'] = 'left'; },
    'see' => fn () => json_encode([$_POST, $_COOKIE, $_FILES, isset($_GET['left']), isset($_REQUEST['left'])]),
];
