<?php
// The object of an enum case, created at its first use.
enum LeakEnumCase { case A; case B; }
return [
    'leaks' => false,
    'why' => 'a case is a single immutable object',
    'set' => function () { $GLOBALS['leak_enum'] = LeakEnumCase::B; },
    'see' => fn () => var_export(LeakEnumCase::B === constant('LeakEnumCase::B'), true) . count(LeakEnumCase::cases()),
];
