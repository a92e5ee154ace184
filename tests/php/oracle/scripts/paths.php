<?php
header('Content-Type: text/plain');
foreach (['REQUEST_URI', 'DOCUMENT_URI', 'SCRIPT_NAME', 'SCRIPT_FILENAME', 'PATH_INFO', 'PATH_TRANSLATED', 'PHP_SELF',
    'QUERY_STRING', 'ORIG_PATH_INFO', 'ORIG_SCRIPT_NAME', 'ORIG_SCRIPT_FILENAME', 'ORIG_PATH_TRANSLATED', 'DOCUMENT_ROOT'] as $name) {
    echo $name, ': ', json_encode($_SERVER[$name] ?? null, JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE), "\n";
}
echo __FILE__, "\n", getcwd(), "\n";
