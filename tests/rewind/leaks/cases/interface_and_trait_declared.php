<?php
// An interface and a trait that a request declares.
return [
    'set' => function () { eval('interface LeakInterfaceDeclared {} trait LeakTraitDeclared {}'); },
    'see' => fn () => var_export([interface_exists('LeakInterfaceDeclared'), trait_exists('LeakTraitDeclared')], true),
];
