<?php
// An exception thrown during serialize and unserialize.
class LeakSerialize { function __serialize(): array { throw new Exception('left'); } function __unserialize(array $a): void { throw new Exception('left'); } }
return [
    'leaks' => false,
    'why' => 'the exception ends it',
    'set' => function () { try { serialize([new ArrayObject([1]), new LeakSerialize]); } catch (Exception) {} try { unserialize('a:2:{i:0;O:8:"stdClass":0:{}i:1;O:13:"LeakSerialize":0:{}}'); } catch (Exception) {} },
    'see' => function () { $o = new stdClass; return serialize([$o, $o]) . count(unserialize('a:2:{i:0;O:8:"stdClass":0:{}i:1;r:2;}')); },
];
