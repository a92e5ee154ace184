<?php
// An image from the boot.
return [
    'needs' => ['gd'],
    'boot' => fn () => imagecreatetruecolor(4, 4),
    'set' => function ($boot) { imagesetpixel($boot, 1, 1, 0xff0000); imagealphablending($boot, false); },
    'see' => fn ($boot) => (string) imagecolorat($boot, 1, 1),
];
