<?php
// output_add_rewrite_var.
return [
    'set' => function () { output_add_rewrite_var('left', 'left'); },
    'see' => fn () => '<a href="x.php">x</a><form></form>' . json_encode(ob_list_handlers()),
    'leaks' => false,
    'why' => 'the end of a request ends its buffers',
];
