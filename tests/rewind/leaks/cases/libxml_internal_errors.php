<?php
// The setting by which libxml collects its errors.
return [
    'needs' => ['libxml'],
    'leaks' => false,
    'why' => 'each request finds that of the boot',
    'set' => function () { libxml_use_internal_errors(true); },
    'see' => fn () => json_encode(libxml_use_internal_errors()),
];
