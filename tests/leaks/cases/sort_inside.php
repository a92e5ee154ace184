<?php
// An exception out of the middle of a sort, with a comparison of boot.
return [
    'leaks' => false,
    'why' => 'the exception ends it',
    'set' => function () { try { usort($GLOBALS['leak_sorted'], fn () => throw new Exception('left')); } catch (Throwable) {} try { $a = [3, 1, 2]; usort($a, fn () => throw new Exception('left')); } catch (Exception) {} },
    'see' => function () { $a = [3, 1, 2]; usort($a, fn ($x, $y) => $x <=> $y); return json_encode($a); },
];
