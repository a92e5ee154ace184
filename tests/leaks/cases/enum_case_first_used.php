<?php
// The object of an enum's case, made when it is first used.
enum LeakEnumCase { case A; case B; }
return [
    'leaks' => false,
    'why' => 'a case is one object for ever, and cannot be changed',
    'set' => function () { $GLOBALS['leak_enum'] = LeakEnumCase::B; },
    'see' => fn () => var_export(LeakEnumCase::B === constant('LeakEnumCase::B'), true) . count(LeakEnumCase::cases()),
];
