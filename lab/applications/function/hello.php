<?php

return static fn (array $event): string => 'Hello World!';
