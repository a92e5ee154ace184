<?php
// mbstring's detection order.
return [
    'needs' => ['mbstring'],
    'set' => function () { mb_detect_order(['EUC-JP', 'SJIS']); },
    'see' => fn () => implode(',', mb_detect_order()),
];
