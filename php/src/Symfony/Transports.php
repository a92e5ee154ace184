<?php

namespace Surus\Symfony;

use Surus\DatabaseTls;
use Surus\ServerUrl;
use Symfony\Component\Messenger\Bridge\AmazonSqs\Transport\AmazonSqsTransport;
use Symfony\Component\Messenger\Bridge\AmazonSqs\Transport\Connection as SqsConnection;
use Symfony\Component\Messenger\Bridge\Amqp\Transport\AmqpTransport;
use Symfony\Component\Messenger\Bridge\Doctrine\Transport\Connection as DoctrineConnection;
use Symfony\Component\Messenger\Bridge\Doctrine\Transport\DoctrineTransport;
use Symfony\Component\Messenger\Bridge\Redis\Transport\RedisProxy;
use Symfony\Component\Messenger\Bridge\Redis\Transport\RedisTransport;
use Symfony\Component\Messenger\Transport\Receiver\ReceiverInterface;
use Symfony\Component\Messenger\Transport\Serialization\SerializerInterface;

/** Tells `surus work` where the messages of an application's transports are. */
final class Transports
{
    /** @var array<string, ReceiverInterface> those that may be connected */
    private array $used = [];

    public function __construct(private readonly Messenger $messenger)
    {
    }

    public function describe(): array
    {
        $transports = [];
        foreach (
            array_diff($this->messenger->names, $this->messenger->failureTransports()) as $name
        ) {
            $transport = $this->get($name);
            $transports[] = ['name' => $name] + match (true) {
                $transport instanceof DoctrineTransport => self::doctrine(
                    self::read($transport, 'connection')
                ),
                $transport instanceof RedisTransport => self::redis(
                    self::read($transport, 'connection')
                ),
                $transport instanceof AmqpTransport => Amqp::describe(
                    self::read($transport, 'connection')
                ),
                $transport instanceof AmazonSqsTransport => self::sqs(
                    self::read($transport, 'connection')
                ),
                default => ['driver' => get_debug_type($transport)],
            };
        }

        return ['transports' => $transports];
    }

    public function serializer(string $name): SerializerInterface
    {
        $transport = $this->get($name);

        return self::read($transport, 'serializer')
            ?? throw new \LogicException("the transport $name has no serializer");
    }

    /** Seconds after which a rejected message runs again; null if it is deleted. */
    public function pauseOfRejected(string $name): ?int
    {
        $transport = $this->get($name);
        $configuration = $transport instanceof AmazonSqsTransport
            ? self::read(self::read($transport, 'connection'), 'configuration')
            : [];

        return $configuration['delete_on_rejection'] ?? true ? null : $configuration['retry_delay'];
    }

    public function disconnect(): void
    {
        foreach ($this->used as $transport) {
            if ($transport instanceof DoctrineTransport) {
                $connection = self::read($transport, 'connection');
                BootDatabases::closeUnlessKept(self::read($connection, 'driverConnection'));
            } elseif ($transport instanceof RedisTransport
                && ($client = self::opened(self::read($transport, 'connection')))) {
                $client->close();
            } elseif ($transport instanceof AmqpTransport) {
                Amqp::disconnect(self::read($transport, 'connection'));
            }
        }
        $this->used = [];
    }

    public function get(string $name): ReceiverInterface
    {
        return $this->used[$name] = $this->messenger->receiver($name);
    }

    private static function doctrine(DoctrineConnection $connection): array
    {
        // Creates the table where Messenger would.
        $connection->getMessageCount();
        $configuration = $connection->getConfiguration();
        $database = self::read($connection, 'driverConnection')->getParams();
        $database = $database['primary'] ?? $database['master'] ?? [] ?: $database;
        $driver = str_replace(
            ['pdo_', 'sqlite3', 'mysqli'],
            ['', 'sqlite', 'mysql'],
            (string) ($database['driver'] ?? '')
        );
        $unsupported = match ($driver) {
            'mysql' => self::tls($database)->unsupported,
            'pgsql' => DatabaseTls::unsupportedOfPostgres($database),
            default => [],
        };
        if ($unsupported) {
            return [
                'driver' => 'a database with settings that surus work cannot keep: '
                    .implode(', ', $unsupported)
            ];
        }

        return [
            'driver' => 'database',
            'table' => $configuration['table_name'],
            'queue' => $configuration['queue_name'],
            'lease' => (int) $configuration['redeliver_timeout'],
            'timezone' => self::zone(),
            'file' => 'sqlite' === $driver ? (string) ($database['path'] ?? '') : null,
            'url' => \in_array($driver, ['mysql', 'pgsql'], true)
                ? self::url($driver, $database)
                : null,
        ];
    }

    /** Messenger writes times without a zone, in PHP's until version 6. */
    private static function zone(): string
    {
        $code = file_get_contents((new \ReflectionClass(DoctrineConnection::class))->getFileName());

        return str_contains($code, "DateTimeImmutable('UTC')")
            ? 'UTC'
            : date_default_timezone_get();
    }

    private static function url(string $driver, array $database): string
    {
        $options = [];
        if ('mysql' === $driver && '' !== $socket = (string) ($database['unix_socket'] ?? '')) {
            $options['socket'] = $socket;
        }
        if (\in_array($database['sslmode'] ?? '', ['require', 'verify-ca', 'verify-full'], true)) {
            $options['sslmode'] = 'require';
        }
        if ('mysql' === $driver && self::tls($database)->isRequired) {
            $options['require_ssl'] = 'true';
        }

        return ServerUrl::database(
            $driver, (string) ($database['host'] ?? '127.0.0.1'), (int) (
                $database['port'] ?? ('mysql' === $driver ? 3306 : 5432)
            ),
            (string) ($database['user'] ?? ''), (string) (
                $database['password'] ?? ''
            ), (string) ($database['dbname'] ?? ''), $options,
        );
    }

    private static function tls(array $database): DatabaseTls
    {
        return DatabaseTls::ofMySql($database['driverOptions'] ?? [], $database);
    }

    private static function redis(object $connection): array
    {
        $client = self::client($connection);
        if ($client instanceof \RedisCluster) {
            return ['driver' => 'a cluster of Redis'];
        }
        $host = (string) $client->getHost();
        $auth = $client->getAuth();
        [$user, $password] = \is_array($auth) && \count($auth) > 1
            ? array_values($auth)
            : ['', \is_array($auth) ? (string) reset($auth) : (string) $auth];
        $tls = str_starts_with($host, 'tls://') || str_starts_with($host, 'rediss://');
        $url = str_starts_with($host, '/')
            ? ServerUrl::redisSocket($host, $user, $password, $client->getDbNum())
            : ServerUrl::redis(
                $tls,
                preg_replace('~^\w+://~', '', $host),
                $client->getPort(),
                $user,
                $password,
                $client->getDbNum()
            );

        return [
            'driver' => 'redis',
            'url' => $url,
            'queue' => self::read($connection, 'stream'),
            'group' => self::read($connection, 'group'),
            'lease' => intdiv((int) self::read($connection, 'redeliverTimeout'), 1000),
            'max_entries' => (int) self::read($connection, 'maxEntries'),
            'deletes' => (bool) self::read($connection, 'deleteAfterAck'),
            // The serialization that phpredis adds to a message; by default PHP's of a string.
            'serializer' => match ($client->getOption(\Redis::OPT_SERIALIZER)) {
                \Redis::SERIALIZER_NONE => 'none',
                \Redis::SERIALIZER_PHP => 'php',
                default => 'other',
            },
        ];
    }

    private static function sqs(SqsConnection $connection): array
    {
        $configuration = self::read($connection, 'configuration');
        if ($configuration['auto_setup']) {
            // Creates the queue where Messenger would.
            $connection->setup();
        }
        $client = self::read($connection, 'client')->getConfiguration();
        $keys = array_map($client->get(...), ['accessKeyId', 'accessKeySecret', 'sessionToken']);
        $hasKeys = isset($keys[0], $keys[1]);
        if ($hasKeys && null !== $client->get('roleArn')) {
            return ['driver' => 'SQS with a role that keys assume'];
        }
        $endpoint = strtr(
            (string) $client->get('endpoint'),
            ['%service%' => 'sqs', '%region%' => (string) $client->get('region')]
        );

        return [
            'driver' => 'sqs',
            'url' => \Closure::bind(
                fn () => $this->getQueueUrl(),
                $connection,
                $connection::class
            )(),
            'endpoint' => $client->isDefault('endpoint') ? null : $endpoint,
            'region' => $client->get('region'),
            // Others are those of the environment, which Surus reads itself.
            'credentials' => $hasKeys ? $keys : null,
            'lease' => $configuration['visibility_timeout'],
        ];
    }

    /** The connected client of phpredis. */
    private static function client(object $connection): object
    {
        if ($client = self::opened($connection)) {
            return $client;
        }
        if (method_exists($connection, 'getRedis')) {
            return \Closure::bind(fn () => $this->getRedis(), $connection, $connection::class)();
        }
        // A lazy one of Symfony 5 connects when it is used.
        $lazy = self::read($connection, 'connection');
        $lazy->ping();

        return self::read($lazy, 'redis');
    }

    /** The client of phpredis if there is one already. */
    private static function opened(object $connection): ?object
    {
        $client = self::read($connection, 'redis') ?? self::read($connection, 'connection');
        if ($client instanceof RedisProxy && self::read($client, 'ready')) {
            $client = self::read($client, 'redis');
        }

        return $client instanceof \Redis || $client instanceof \RedisCluster ? $client : null;
    }

    private static function read(object $object, string $property): mixed
    {
        return \Closure::bind(fn () => $this->$property ?? null, $object, $object::class)();
    }
}
