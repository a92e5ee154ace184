<?php

return ['driver' => 'bcrypt', 'bcrypt' => ['rounds' => 4, 'verify' => false]];
