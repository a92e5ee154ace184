<?php
header('Content-Type: text/plain');
var_export($_GET);
echo "\n";
var_export($_REQUEST);
echo "\n", $_SERVER['QUERY_STRING'], "\n", $_SERVER['REQUEST_URI'], "\n";
