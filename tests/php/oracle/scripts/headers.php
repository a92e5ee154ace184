<?php
header('Content-Type: text/plain');
$headers = getallheaders();
ksort($headers);
var_export($headers);
echo "\n", var_export(apache_request_headers() == getallheaders(), true), "\n";
