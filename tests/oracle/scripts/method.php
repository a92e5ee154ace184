<?php
header('X-Method: ' . $_SERVER['REQUEST_METHOD']);
echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['SERVER_PROTOCOL'], ' ', php_sapi_name(), "\n";
