<?php
// A reader and a writer from the boot.
return [
    'needs' => ['xmlreader', 'xmlwriter'],
    'boot' => function () { $r = XMLReader::XML('<a><b/><c/></a>'); $r->read(); $w = new XMLWriter; $w->openMemory(); $w->startElement('a'); return [$r, $w]; },
    'set' => function ($boot) { $boot[0]->read(); $boot[1]->writeElement('left'); },
    'see' => fn ($boot) => $boot[0]->name . $boot[1]->outputMemory(false),
];
