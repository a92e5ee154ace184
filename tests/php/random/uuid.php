<?php
// Time-based UUIDs; the boot has created one.
(function () {
    $boot = uuid_create(UUID_TYPE_TIME);
    surus_serve(function () use ($boot) {
        echo uuid_type($boot), ' ', $boot, ' ', uuid_create(UUID_TYPE_TIME);
    });
})();
