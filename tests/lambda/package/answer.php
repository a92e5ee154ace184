<?php

/** Says what the package must have brought along for. */
function answer(): void
{
    session_start();
    $zone = new DateTimeZone('Europe/Berlin');
    header('Content-Type: application/json');
    echo json_encode([
        'engine' => getenv('SURUS_ENGINE'),
        'query' => $_GET['name'] ?? null,
        'opcache' => is_array(opcache_get_status(false)),
        'greeting' => getenv('GREETING'),
        'memory_limit' => ini_get('memory_limit'),
        'ini' => php_ini_loaded_file(),
        'zone' => (new DateTime('2026-07-01 12:00', $zone))->format('c'),
        'charset' => bin2hex((string) iconv('UTF-8', 'EUC-JP', '日本')),
        'key' => openssl_pkey_new() !== false,
        'authorities' => is_readable((string) ini_get('openssl.cafile')),
        'sqlite' => substr((new PDO('sqlite::memory:'))->query('select sqlite_version()')->fetchColumn(), 0, 1),
        'session' => session_status() === PHP_SESSION_ACTIVE,
        'foreign' => array_values(array_filter(['/usr', '/etc', '/lib', '/lib64'], file_exists(...))),
    ]);
}
