<?php

// Tests which TLS settings of a database connection `surus work` keeps, and which it names.

use Surus\DatabaseTls;

return [
    'connection without TLS settings needs no TLS' => static function (): void {
        $tls = DatabaseTls::ofMySql(['flags' => 2], ['host' => 'db', 'ssl_ca' => '']);
        same([false, []], [$tls->isRequired, $tls->unsupported]);
    },
    'parameters of mysqli ask for TLS' => static function (): void {
        foreach (['ssl_ca', 'ssl_capath', 'ssl_cipher'] as $name) {
            $tls = DatabaseTls::ofMySql([], [$name => 'x']);
            same([true, []], [$tls->isRequired, $tls->unsupported]);
        }
        same(true, DatabaseTls::ofMySql(['flags' => 2048 | 2])->isRequired);
    },
    'certificate of the client is named' => static function (): void {
        $tls = DatabaseTls::ofMySql([], ['ssl_ca' => 'a', 'ssl_cert' => 'c', 'ssl_key' => 'k']);
        same([true, ['ssl_cert', 'ssl_key']], [$tls->isRequired, $tls->unsupported]);
        same(
            ['sslcert', 'sslkey'],
            DatabaseTls::unsupportedOfPostgres(
                ['sslmode' => 'require', 'sslkey' => 'k', 'sslcert' => 'c']
            )
        );
        same([], DatabaseTls::unsupportedOfPostgres(['sslmode' => 'require', 'sslkey' => '']));
    },
    'options of PDO ask for TLS, and its certificate of the client is named' =>
    static function (): void {
        $prefix = match (true) {
            defined('Pdo\Mysql::ATTR_SSL_CA') => 'Pdo\Mysql::ATTR_',
            defined('PDO::MYSQL_ATTR_SSL_CA') => 'PDO::MYSQL_ATTR_',
            default => null,
        };
        if (null === $prefix) {
            return;
        }
        $tls = DatabaseTls::ofMySql([constant($prefix.'SSL_CA') => '/ca.pem']);
        same([true, []], [$tls->isRequired, $tls->unsupported]);
        $tls = DatabaseTls::ofMySql([constant($prefix.'SSL_KEY') => '/key.pem']);
        same([true, [$prefix.'SSL_KEY']], [$tls->isRequired, $tls->unsupported]);
        same(
            false,
            DatabaseTls::ofMySql([constant($prefix.'SSL_VERIFY_SERVER_CERT') => false])->isRequired
        );
    },
];
