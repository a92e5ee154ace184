<?php
// In which order mbstring guesses.
return [
    'needs' => ['mbstring'],
    'set' => function () { mb_detect_order(['EUC-JP', 'SJIS']); },
    'see' => fn () => implode(',', mb_detect_order()),
];
