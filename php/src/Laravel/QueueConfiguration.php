<?php

namespace Surus\Laravel;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Support\ConfigurationUrlParser;
use Surus\DatabaseTls;
use Surus\ServerUrl;

/** Tells `surus work` where the jobs of an application's default queue connection are. */
final class QueueConfiguration
{
    public static function describe(Application $app): array
    {
        $config = $app->make('config');
        $name = (string) $config->get('queue.default');
        $queue = (array) $config->get("queue.connections.$name");
        $driver = (string) ($queue['driver'] ?? '');
        if ('sqs' === $driver && ($queue['overflow']['enabled'] ?? false)) {
            // Surus would read pointers for jobs, without their timeouts and ids.
            $driver = 'sqs with overflow storage';
        }

        return [
            'connection' => $name,
            'driver' => $driver,
            'queue' => (string) ($queue['queue'] ?? 'default'),
            'table' => $queue['table'] ?? null,
            // As in the connectors.
            'retry_after' => (int) ($queue['retry_after'] ?? 60),
            'failed_table' => $config->get('queue.failed.table'),
            'database' => self::database(
                $app,
                $queue['connection'] ?? $config->get('database.default')
            ),
            'redis' => 'redis' === $driver
                ? self::redis($app, $queue['connection'] ?? 'default')
                : null,
            'sqs' => 'sqs' === $driver ? self::sqs($queue) : null,
        ];
    }

    /** Where the queues are, as in SqsConnector and SqsQueue. */
    private static function sqs(array $queue): array
    {
        $text = static fn (string $name) => '' === (string) ($queue[$name] ?? '')
            ? null
            : (string) $queue[$name];

        return [
            'prefix' => rtrim($text('prefix') ?? '', '/'),
            'suffix' => $text('suffix') ?? '',
            'region' => $text('region'),
            'credentials' => $text('key') && $text('secret')
                ? [$text('key'), $text('secret'), $text('token')]
                : null,
        ];
    }

    /** The URL of a Redis connection, and what its keys begin with; null for a cluster. */
    private static function redis(Application $app, string $name): ?array
    {
        $server = $app->make('config')->get("database.redis.$name");
        if (!\is_array($server) || array_is_list($server)) {
            return null;
        }
        $server = (new ConfigurationUrlParser())->parseConfiguration($server);
        $host = (string) ($server['host'] ?? '127.0.0.1');
        $scheme = strtolower((string) ($server['scheme'] ?? $server['driver'] ?? 'tcp'));
        if (preg_match('~^(tcp|tls|unix)://(.*)$~', $host, $parts)) {
            [, $scheme, $host] = $parts;
        }
        $socket = 'unix' === $scheme
            ? (string) ($server['path'] ?? $host)
            : (str_starts_with($host, '/') ? $host : null);
        $user = (string) ($server['username'] ?? '');
        $password = (string) ($server['password'] ?? '');
        $database = (int) ($server['database'] ?? 0);
        $url = null !== $socket
            ? ServerUrl::redisSocket($socket, $user, $password, $database)
            : ServerUrl::redis(
                'tls' === $scheme,
                $host,
                (int) ($server['port'] ?? 6379),
                $user,
                $password,
                $database
            );
        // Which of several prefixes counts differs by client and version.
        $client = $app->make('redis')->connection($name)->client();
        $prefix = match (true) {
            $client instanceof \Redis => (string) $client->getOption(\Redis::OPT_PREFIX),
            $client instanceof \Predis\Client => (string) $client->getOptions()
                ->prefix
                ?->getPrefix(),
            default => throw new \LogicException(
                "the Redis connection $name is neither phpredis nor Predis"
            ),
        };

        return ['url' => $url, 'prefix' => $prefix];
    }

    private static function database(Application $app, ?string $name): ?array
    {
        $database = $app->make('config')->get("database.connections.$name");
        if (!\is_array($database)) {
            return null;
        }
        $database = (new ConfigurationUrlParser())->parseConfiguration($database);
        // Jobs are reserved where the application writes.
        $write = $database['write'] ?? [];
        $database = array_merge($database, array_is_list($write) ? $write[0] ?? [] : $write);
        $driver = (string) ($database['driver'] ?? '');
        $unsupported = match ($driver) {
            'mysql', 'mariadb' => self::tls($database)->unsupported,
            'pgsql' => DatabaseTls::unsupportedOfPostgres($database),
            default => [],
        };

        return [
            'unsupported' => $unsupported,
            'driver' => $driver,
            'database' => (string) ($database['database'] ?? ''),
            'url' => match ($driver) {
                'mysql', 'mariadb' => self::mysql($database),
                'pgsql' => self::postgres($database),
                default => null,
            },
            'prefix' => (string) ($database['prefix'] ?? ''),
        ];
    }

    private static function mysql(array $database): string
    {
        $options = [];
        if ('' !== $socket = (string) ($database['unix_socket'] ?? '')) {
            $options['socket'] = $socket;
        }
        if (self::tls($database)->isRequired) {
            $options['require_ssl'] = 'true';
        }

        return self::url('mysql', $database, 3306, $options);
    }

    private static function tls(array $database): DatabaseTls
    {
        return DatabaseTls::ofMySql($database['options'] ?? []);
    }

    private static function postgres(array $database): string
    {
        $options = [];
        if (\in_array($database['sslmode'] ?? '', ['require', 'verify-ca', 'verify-full'], true)) {
            $options['sslmode'] = 'require';
        }
        $path = $database['search_path'] ?? $database['schema'] ?? 'public';
        $path = \is_array($path) ? implode(',', $path) : (string) $path;
        if ('public' !== $path) {
            // Spaces would end the option.
            $options['options'] = '-csearch_path='.str_replace([' ', "'"], '', $path);
        }

        return self::url('pgsql', $database, 5432, $options);
    }

    /** @param array<string, string> $options */
    private static function url(string $scheme, array $database, int $port, array $options): string
    {
        $host = $database['host'] ?? '127.0.0.1';
        $host = (string) (\is_array($host) ? reset($host) : $host);

        return ServerUrl::database(
            $scheme, $host, (int) ($database['port'] ?? $port), (string) (
                $database['username'] ?? ''
            ),
            (string) ($database['password'] ?? ''), (string) (
                $database['database'] ?? ''
            ), $options,
        );
    }
}
