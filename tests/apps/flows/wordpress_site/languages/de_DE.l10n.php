<?php

return [
    'language' => 'de',
    'plural-forms' => 'nplurals=2; plural=n != 1;',
    'messages' => [
        'Log In' => 'Anmelden',
        'Username or Email Address' => 'Benutzername oder E-Mail-Adresse',
        'Lost your password?' => 'Passwort vergessen?',
    ],
];
