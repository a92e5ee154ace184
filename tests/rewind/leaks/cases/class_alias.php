<?php
// Another name for a class.
class LeakAliased
{
}
return [
    'set' => function () { class_alias('LeakAliased', 'LeakClassAlias'); },
    'see' => fn () => class_exists('LeakClassAlias') ? 'left' : 'none',
];
