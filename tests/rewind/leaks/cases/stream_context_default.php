<?php
// The default stream context.
return [
    'leaks' => false,
    'why' => 'the end of a request forgets it',
    'set' => function () { stream_context_set_default(['http' => ['user_agent' => 'left']]); },
    'see' => fn () => json_encode(stream_context_get_options(stream_context_get_default())),
];
