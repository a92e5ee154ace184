<?php
// Parameters of an XSLT processor from the boot.
return [
    'needs' => ['xsl', 'dom'],
    'boot' => fn () => new XSLTProcessor,
    'set' => function ($boot) { $boot->setParameter('', 'left', 'left'); },
    'see' => fn ($boot) => var_export($boot->getParameter('', 'left'), true),
];
