<?php
// A sodium hash that the boot began.
return [
    'needs' => ['sodium'],
    'boot' => fn () => (object) ['state' => sodium_crypto_generichash_init()],
    'set' => function ($boot) { sodium_crypto_generichash_update($boot->state, 'left'); },
    'see' => function ($boot) { $state = $boot->state . ''; return bin2hex(sodium_crypto_generichash_final($state)); },
];
