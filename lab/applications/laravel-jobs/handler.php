<?php

return new Surus\Lambda\Laravel\Queue(require __DIR__.'/bootstrap/app.php');
