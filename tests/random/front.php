<?php
// The same for engines that boot nothing.
require __DIR__ . '/draw.php';
// GMP's generator is seeded for each request, by PHP and with 20 bits: two equal ones may be chance.
random_answer(['gmp' => false] + random_boot());
