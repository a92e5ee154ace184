<?php
// A variable of libc, written by FFI.
return [
    'needs' => ['FFI'],
    'set' => function () { FFI::cdef('extern int optind;')->optind = 77; },
    'see' => fn () => (string) FFI::cdef('extern int optind;')->optind,
];
