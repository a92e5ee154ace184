<?php

return ['defaults' => ['guard' => 'web'], 'guards' => []];
