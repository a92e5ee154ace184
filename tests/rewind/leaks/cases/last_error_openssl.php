<?php
// OpenSSL's queue of errors.
return [
    'needs' => ['openssl'],
    'set' => function () { @openssl_pkey_get_private('left'); },
    'see' => fn () => openssl_error_string() === false ? 'none' : 'an error',
];
