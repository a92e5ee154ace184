<?php
// The script for engines that boot nothing.
require __DIR__ . '/draw.php';
// In each request, PHP seeds GMP's generator with only 20 bits, and before 8.4 that of lcg_value() with the
// microsecond and the process id: equal values may be chance.
random_answer(['gmp' => false, 'lcg_value' => PHP_VERSION_ID >= 80400] + random_boot());
