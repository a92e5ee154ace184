<?php

namespace Surus;

/**
 * What the TLS settings of a connection to MySQL mean for `surus work`, which connects by itself.
 */
final class DatabaseTls
{
    /** Settings of PDO and mysqli that ask for TLS, by the end of their names. */
    private const SETTINGS = [
        'ssl_ca',
        'ssl_capath',
        'ssl_cipher',
        'ssl_cert',
        'ssl_key',
        'ssl_verify_server_cert'
    ];
    /** A certificate of the client, which Surus does not send. */
    private const OF_THE_CLIENT = ['ssl_cert', 'ssl_key'];
    /** MYSQLI_CLIENT_SSL; mysqli may be missing here. */
    private const MYSQLI_FLAG = 2048;

    /** @param list<string> $unsupported the names of settings that Surus cannot keep */
    private function __construct(
        public readonly bool $isRequired,
        public readonly array $unsupported
    )
    {
    }

    /**
     * @param array<int|string, mixed> $options    of PDO, or those of mysqli
     * @param array<string, mixed>     $connection parameters of Doctrine, such as ssl_ca
     */
    public static function ofMySql(array $options, array $connection = []): self
    {
        $isRequired = (bool) ((int) ($options['flags'] ?? 0) & self::MYSQLI_FLAG);
        $unsupported = [];
        foreach (self::SETTINGS as $name) {
            $constant = self::constantOfPdo($name);
            $attribute = null !== $constant ? $options[\constant($constant)] ?? null : null;
            if (!$attribute && !($connection[$name] ?? null)) {
                continue;
            }
            $isRequired = true;
            if (\in_array($name, self::OF_THE_CLIENT, true)) {
                $unsupported[] = $attribute ? (string) $constant : $name;
            }
        }

        return new self($isRequired, $unsupported);
    }

    /**
     * @param array<string, mixed> $connection
     *
     * @return list<string> the names of settings that Surus cannot keep
     */
    public static function unsupportedOfPostgres(array $connection): array
    {
        return array_values(
            array_filter(
                ['sslcert', 'sslkey', 'sslcrl'],
                static fn (string $name) => (bool) ($connection[$name] ?? null)
            )
        );
    }

    /**
     * The numbers differ between versions, the names since PHP 8.4; the extension may be missing.
     */
    private static function constantOfPdo(string $name): ?string
    {
        foreach (['Pdo\Mysql::ATTR_', 'PDO::MYSQL_ATTR_'] as $prefix) {
            if (\defined($constant = $prefix.strtoupper($name))) {
                return $constant;
            }
        }

        return null;
    }
}
