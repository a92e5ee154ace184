<?php
// A parser from the boot with half a document.
return [
    'needs' => ['xml'],
    'boot' => function () { $p = xml_parser_create(); xml_parse($p, '<a>'); return $p; },
    'set' => function ($boot) { xml_parse($boot, '<b>'); xml_parser_set_option($boot, XML_OPTION_CASE_FOLDING, 0); },
    'see' => fn ($boot) => xml_get_current_byte_index($boot) . '/' . (int) xml_parser_get_option($boot, XML_OPTION_CASE_FOLDING),
];
