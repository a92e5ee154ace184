<?php
// Compression of the output by PHP.
return [
    'needs' => ['zlib'],
    'set' => function () { ini_set('zlib.output_compression', '1'); ini_set('zlib.output_compression_level', '3'); },
    'see' => fn () => ini_get('zlib.output_compression') . ini_get('zlib.output_compression_level') . json_encode(ob_list_handlers()),
];
