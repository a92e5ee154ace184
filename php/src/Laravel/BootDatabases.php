<?php

namespace Surus\Laravel;

use Illuminate\Database\Connection;
use Illuminate\Database\Events\QueryExecuted;
use Illuminate\Foundation\Application;
use Illuminate\Support\ConfigurationUrlParser;
use Illuminate\Support\Str;
use Surus\DatabaseSession;

/**
 * Closes the connections to databases and Redis that the boot has opened: the processes that serve
 * would share them.
 */
final class BootDatabases
{
    /** Statements that leave nothing in a session, not even what DatabaseSession does not see. */
    private const PLAIN = '/^[\s(]*(?:select|show|with|insert|update|delete'
        .'|pragma\s+\w+_(?:x?info|list))\b/i';

    /** Parts of such statements that configure it nevertheless. */
    private const CONFIGURES = '/(?<!\binto )\b(?:set_\w+|\w*_lock\w*|load_extension)\s*\('
        .'|\binto\s+@|:=|;\s*\S/i';

    /** @var \WeakMap<Connection, string> the first other statement of each connection */
    private readonly \WeakMap $statements;
    private bool $boots = true;

    /** Call this before the application boots. */
    public function __construct(private readonly Application $app)
    {
        $this->statements = new \WeakMap();
        $app->make('events')->listen(QueryExecuted::class, $this->note(...));
    }

    /** Call this when the boot has ended. Connections that a new one may not equal stay open. */
    public function close(): void
    {
        $this->boots = false;
        $all = $this->app->resolved('db') ? $this->app->make('db')->getConnections() : [];
        foreach ($all as $name => $connection) {
            $pdo = self::pdo($connection);
            // In memory, the connection is the database.
            if (!array_filter($pdo, static fn (mixed $one) => $one instanceof \PDO)
                || preg_match('/:memory:|mode=memory/', (string) $connection->getDatabaseName())) {
                continue;
            }
            $reason = $this->reasonToKeep((string) $name, $connection)
                ?? $this->closeOne((string) $name, $connection, $pdo);
            if ($reason) {
                error_log("surus: the boot's database connection $name stays open: $reason");
            }
        }
        Runner::disconnectRedis($this->app);
    }

    private function note(QueryExecuted $query): void
    {
        $sql = $query->sql;
        if (!$this->boots) {
            return;
        }
        if (!preg_match(self::PLAIN, $sql) || preg_match(self::CONFIGURES, $sql)) {
            // Without what may be a secret.
            $shown = preg_replace('/[\s[:cntrl:]]+/', ' ', strtok($sql, '\'"'));
            $this->statements[$query->connection] ??= Str::limit(trim($shown), 200);
        }
    }

    private function reasonToKeep(string $name, Connection $connection): ?string
    {
        $statement = $this->statements[$connection] ?? null;

        return match (true) {
            null !== $statement => "it may depend on $statement",
            $connection->transactionLevel() > 0 => 'it has an open transaction',
            !$this->isAsConfigured($name, $connection) => 'the configuration has another or none',
            default => null,
        };
    }

    /** Whether Laravel would connect to the same database again. */
    private function isAsConfigured(string $name, Connection $connection): bool
    {
        $entry = 'database.connections.'.explode('::', $name)[0];
        if (null === $entry = $this->app->make('config')->get($entry)) {
            return false;
        }
        $entry = (new ConfigurationUrlParser())->parseConfiguration($entry);
        $keys = ['driver', 'database', 'username'];
        if (!isset($entry['read'])) {
            // Otherwise it may be any of several.
            array_push($keys, 'host', 'port');
        }
        $keys = array_flip($keys);

        return array_intersect_key($entry, $keys)
            == array_intersect_key($connection->getConfig(), $keys);
    }

    /** @return array<string, mixed> what the connection has, by the end of the method's name */
    private static function pdo(Connection $connection): array
    {
        $all = ['Pdo' => $connection->getRawPdo(), 'ReadPdo' => $connection->getRawReadPdo()];
        if (method_exists($connection, 'getRawDirectPdo')) {
            $all['DirectPdo'] = $connection->getRawDirectPdo();
        }

        return $all;
    }

    /**
     * Closes it if a new connection has the same session, and tells otherwise why not.
     *
     * @param array<string, mixed> $pdo
     */
    private function closeOne(string $name, Connection $connection, array $pdo): ?string
    {
        $this->connectLater($name, $connection, $pdo);
        foreach ($pdo as $kind => $one) {
            // Connects as a request would.
            $connect = static fn () => $connection->{"get$kind"}();
            $reason = $one instanceof \PDO
                ? DatabaseSession::difference(static fn () => $one, $connect)
                : null;
            if ($reason) {
                foreach ($pdo as $kind => $one) {
                    $connection->{"set$kind"}($one);
                }

                return $reason;
            }
        }
        $this->connectLater($name, $connection, $pdo);

        return null;
    }

    /**
     * The object stays, with what providers have set on it, and connects when it is used.
     *
     * @param array<string, mixed> $pdo
     */
    private function connectLater(string $name, Connection $connection, array $pdo): void
    {
        $connect = fn (): Connection => $this->app->make('db')->reconnect($name);
        // All, because reconnect() would close those that a request has opened.
        foreach (array_keys(array_filter($pdo)) as $kind) {
            $connection->{"set$kind"}(static fn () => $connect()->{"get$kind"}());
        }
    }
}
