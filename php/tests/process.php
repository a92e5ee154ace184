<?php

// Tests that settings of the process are restored.

use Surus\Process;

return [
    'every category of the locale is restored' => static function (): void {
        $before = [];
        foreach (
            [LC_CTYPE, LC_COLLATE, LC_MONETARY, LC_NUMERIC, LC_TIME, LC_MESSAGES] as $category
        ) {
            $before[$category] = setlocale($category, '0');
        }
        $process = new Process();
        same('C.UTF-8', setlocale(LC_ALL, 'C.UTF-8'));
        $process->restore();
        foreach ($before as $category => $locale) {
            same($locale, setlocale($category, '0'));
        }
    },

    'the type of content that Symfony empties for 304 is restored' => static function (): void {
        $process = new Process();
        ini_set('default_mimetype', '');
        $process->restore();
        same('text/html', ini_get('default_mimetype'));
    },
];
