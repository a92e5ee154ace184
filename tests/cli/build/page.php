<?php

/** Says what the executable must have brought along for. */
function page(): void
{
    session_start();
    $zone = new DateTimeZone('Europe/Berlin');
    echo implode(' ', [
        getenv('GREETING'),
        'from',
        dirname(__DIR__).'/public',
        ini_get('memory_limit'),
        getenv('SURUS_ENGINE'),
        (new DateTime('2026-07-01 12:00', $zone))->format('c'),
        bin2hex((string) iconv('UTF-8', 'EUC-JP', '日本')),
        session_status() === PHP_SESSION_ACTIVE ? 'with a session' : '',
    ]);
}
