<?php
// assert()'s options and callback.
return [
    'set' => function () { @assert_options(ASSERT_CALLBACK, 'strrev'); @assert_options(ASSERT_WARNING, 0); },
    'see' => fn () => json_encode([@assert_options(ASSERT_CALLBACK), @assert_options(ASSERT_WARNING)]),
];
