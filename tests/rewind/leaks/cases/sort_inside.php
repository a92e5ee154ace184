<?php
// An exception thrown during a sort with a comparison function from the boot.
return [
    'leaks' => false,
    'why' => 'the exception ends it',
    'set' => function () { try { usort($GLOBALS['leak_sorted'], fn () => throw new Exception('left')); } catch (Throwable) {} try { $a = [3, 1, 2]; usort($a, fn () => throw new Exception('left')); } catch (Exception) {} },
    'see' => function () { $a = [3, 1, 2]; usort($a, fn ($x, $y) => $x <=> $y); return json_encode($a); },
];
