<?php
header('Content-Type: text/plain');
$input = file_get_contents('php://input');
echo $_SERVER['REQUEST_METHOD'], ' ', strlen($input), ' ', md5($input), ' POST=', count($_POST), "\n";
