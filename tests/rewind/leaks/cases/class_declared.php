<?php
// A class that a request declares.
return [
    'set' => function () { eval('class LeakClassDeclared { const SAYS = "left"; }'); },
    'see' => fn () => class_exists('LeakClassDeclared') ? LeakClassDeclared::SAYS : 'none',
];
