<?php
// A DOM document from the boot.
return [
    'needs' => ['dom'],
    'boot' => function () { $d = new DOMDocument; $d->loadXML('<a><b>booted</b></a>'); return $d; },
    'set' => function ($boot) { $boot->documentElement->appendChild($boot->createElement('left')); $boot->documentElement->firstChild->nodeValue = 'left'; },
    'see' => fn ($boot) => $boot->saveXML($boot->documentElement),
];
