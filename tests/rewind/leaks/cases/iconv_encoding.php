<?php
// iconv's encodings.
return [
    'needs' => ['iconv'],
    'set' => function () { @iconv_set_encoding('internal_encoding', 'ISO-8859-1'); @iconv_set_encoding('output_encoding', 'ISO-8859-2'); },
    'see' => fn () => json_encode(iconv_get_encoding()),
];
