<?php
// Stream settings.
return [
    'set' => function () { ini_set('user_agent', 'left'); ini_set('default_socket_timeout', '7'); ini_set('from', 'left@example.test'); },
    'see' => fn () => ini_get('user_agent') . ini_get('default_socket_timeout') . ini_get('from'),
];
