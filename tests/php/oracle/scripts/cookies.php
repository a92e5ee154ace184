<?php
header('Content-Type: text/plain');
var_export($_COOKIE);
echo "\n", $_SERVER['HTTP_COOKIE'] ?? 'none', "\n";
