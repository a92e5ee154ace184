<?php
// A SimpleXML document from the boot.
return [
    'needs' => ['SimpleXML'],
    'boot' => fn () => simplexml_load_string('<a><b>booted</b></a>'),
    'set' => function ($boot) { $boot->b = 'left'; $boot->addChild('c', 'left')['d'] = 'left'; },
    'see' => fn ($boot) => $boot->asXML(),
];
