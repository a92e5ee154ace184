<?php
// The script for engines that boot nothing.
require __DIR__ . '/draw.php';
// PHP seeds GMP's generator in each request with only 20 bits, so equal values may be chance.
random_answer(['gmp' => false] + random_boot());
