<?php
// An enum that a request declares.
return [
    'set' => function () { eval('enum LeakEnumDeclared: string { case Left = "left"; }'); },
    'see' => fn () => enum_exists('LeakEnumDeclared') ? LeakEnumDeclared::from('left')->name : 'none',
];
