<?php
// The same for engines that boot nothing.
require __DIR__ . '/draw.php';
random_answer(random_boot());
