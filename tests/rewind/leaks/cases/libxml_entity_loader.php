<?php
// libxml's external entity loader.
return [
    'needs' => ['dom'],
    'leaks' => false,
    'why' => 'each request finds that of the boot',
    'set' => function () { libxml_set_external_entity_loader(function () { $GLOBALS['leak_entity'] = 'asked'; return null; }); },
    'see' => function () { unset($GLOBALS['leak_entity']); $d = new DOMDocument; @$d->loadXML('<!DOCTYPE a [<!ENTITY b SYSTEM "file:///nonexistent">]><a>&b;</a>', LIBXML_NOENT); libxml_clear_errors(); return $GLOBALS['leak_entity'] ?? 'not asked'; },
];
