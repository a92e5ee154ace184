<?php
header('Content-Type: text/plain');
var_export($_POST);
echo "\n";
var_export($_REQUEST);
echo "\n", $_SERVER['CONTENT_TYPE'] ?? 'no type', "\n", $_SERVER['CONTENT_LENGTH'] ?? 'no length', "\n";
$input = file_get_contents('php://input');
echo strlen($input), ' ', md5($input), "\n";
