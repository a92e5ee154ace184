<?php

namespace Surus;

/**
 * Compares the session of a database connection with that of a new one. Not seen: options of
 * PostgreSQL with a dot in their names, and MySQL's variables and locks of a SELECT.
 */
final class DatabaseSession
{
    /** MySQL's counters of statements that leave nothing in a session. */
    private const PLAIN = '/^Com_(?:select|insert|update|delete|replace|show|stmt|begin|commit'
        .'|rollback|savepoint|release_savepoint)(?:_|$)/i';

    /** What a SQLite connection has. https://sqlite.org/pragma.html */
    private const PRAGMAS = [
        'analysis_limit', 'automatic_index', 'busy_timeout', 'cache_size', 'cache_spill',
        'cell_size_check', 'checkpoint_fullfsync', 'collation_list', 'count_changes',
        'database_list', 'defer_foreign_keys', 'empty_result_callbacks', 'foreign_keys',
        'full_column_names', 'fullfsync', 'function_list', 'ignore_check_constraints',
        'journal_mode', 'journal_size_limit', 'legacy_alter_table', 'legacy_file_format',
        'max_page_count', 'mmap_size', 'module_list', 'query_only', 'read_uncommitted',
        'recursive_triggers', 'reverse_unordered_selects', 'secure_delete', 'short_column_names',
        'synchronous', 'temp_store', 'temp_store_directory', 'threads', 'trusted_schema',
        'wal_autocheckpoint', 'writable_schema',
    ];

    private function __construct(private readonly object $connection)
    {
    }

    /**
     * Tells why the connection cannot be replaced by a new one. Null if both sessions are the same.
     * Both closures return a `PDO`, `mysqli`, `PgSql\Connection` or `SQLite3`.
     */
    public static function difference(\Closure $connection, \Closure $connect): ?string
    {
        try {
            $old = (new self($connection()))->describe();
            $new = (new self($connect()))->describe();
        } catch (\Throwable $e) {
            return 'it cannot be compared with a new one: '
                .preg_replace('/[\s[:cntrl:]]+/', ' ', $e->getMessage());
        }
        foreach ($old + $new as $name => $value) {
            // Without the value, which may be a secret.
            if (($old[$name] ?? null) !== ($new[$name] ?? null)) {
                return "its $name is not that of a new connection";
            }
        }

        return null;
    }

    /** @return array<string, mixed> what the session has, by name */
    private function describe(): array
    {
        $pdo = $this->connection instanceof \PDO ? $this->connection : null;
        $mode = $pdo?->getAttribute(\PDO::ATTR_ERRMODE);
        $pdo?->setAttribute(\PDO::ATTR_ERRMODE, \PDO::ERRMODE_EXCEPTION);
        try {
            $driver = $pdo?->getAttribute(\PDO::ATTR_DRIVER_NAME) ?? $this->connection::class;
            $attributes = $pdo ? ['ATTR_ERRMODE' => $mode] + self::attributes($pdo, $driver) : [];

            return $attributes + match ($driver) {
                'mysql', \mysqli::class => $this->mysql(),
                'pgsql', \PgSql\Connection::class => $this->postgresql(),
                'sqlite', \SQLite3::class => $this->sqlite(),
                default => throw new \LogicException("Surus cannot describe sessions of $driver"),
            };
        } finally {
            $pdo?->setAttribute(\PDO::ATTR_ERRMODE, $mode);
        }
    }

    /** @return array<string, mixed> */
    private static function attributes(\PDO $pdo, string $driver): array
    {
        $attributes = [];
        // The others are the server's: counters, or the name of one of several hosts.
        $pattern = '/^(?:'.strtoupper($driver).'_)?ATTR_(?!SERVER_|CONNECTION_STATUS$)/';
        foreach ((new \ReflectionClass(\PDO::class))->getConstants() as $name => $number) {
            if (preg_match($pattern, $name)) {
                try {
                    $value = $pdo->getAttribute($number);
                    // A class of statements has arguments, too.
                    $attributes[$name] = \is_array($value) ? $value[0] : $value;
                } catch (\PDOException) {
                    // Not an attribute of this driver.
                }
            }
        }

        return $attributes;
    }

    /** @return array<string, mixed> */
    private function mysql(): array
    {
        $counters = array_column($this->rows("SHOW SESSION STATUS LIKE 'Com\\_%'"), 1, 0);
        if (empty($counters['Com_show_status'])) {
            throw new \LogicException('the server does not count the statements of a session');
        }
        // mysqli does not show the status of the protocol.
        $transaction = $this->connection instanceof \PDO
            ? $this->connection->inTransaction()
            : $counters['Com_begin'] > $counters['Com_commit'] + $counters['Com_rollback'];

        return ['transaction' => $transaction] + array_filter(
            $counters,
            static fn (string $name) => !preg_match(self::PLAIN, $name),
            \ARRAY_FILTER_USE_KEY
        );
    }

    /** @return array<string, mixed> */
    private function postgresql(): array
    {
        $transaction = $this->connection instanceof \PDO
            ? $this->connection->inTransaction()
            : \PGSQL_TRANSACTION_IDLE !== pg_transaction_status($this->connection);

        return ['transaction' => $transaction] + array_column($this->rows(<<<'SQL'
            SELECT name, setting FROM pg_settings WHERE source = 'session'
            UNION ALL SELECT 'LOAD', count(*)::text FROM pg_settings
                WHERE name LIKE '%.%' AND name NOT LIKE 'plpgsql.%'
            UNION ALL SELECT 'current_user', current_user::text
            UNION ALL SELECT 'session_user', session_user::text
            UNION ALL SELECT 'temporary schema', (pg_my_temp_schema() <> 0)::text
            UNION ALL SELECT 'LISTEN', string_agg(channel, ' ' ORDER BY channel)
                FROM pg_listening_channels() AS channel
            UNION ALL SELECT 'PREPARE', count(*)::text FROM pg_prepared_statements WHERE from_sql
            UNION ALL SELECT 'cursor', count(*)::text FROM pg_cursors WHERE is_holdable
            UNION ALL SELECT 'advisory lock', count(*)::text FROM pg_locks
                WHERE locktype = 'advisory' AND pid = pg_backend_pid()
            SQL), 1, 0);
    }

    /** @return array<string, mixed> */
    private function sqlite(): array
    {
        // It fails in a transaction. SQLite3 returns false then.
        try {
            $transaction = false === @$this->connection->exec('BEGIN');
        } catch (\Exception) {
            $transaction = true;
        }
        if (!$transaction) {
            $this->connection->exec('COMMIT');
        }
        $changes = $transaction ? $this->rows('SELECT total_changes()') : null;
        $session = ['transaction' => $transaction, 'number of uncommitted changes' => $changes];
        // Before a pragma reads the database, for which a new connection would wait.
        if ([['exclusive']] === $session['locking_mode'] = $this->rows('PRAGMA locking_mode')) {
            throw new \LogicException('it locks the database');
        }
        foreach (self::PRAGMAS as $name) {
            $session[$name] = $this->rows("PRAGMA $name");
        }
        if (!$session['function_list']) {
            throw new \LogicException('this SQLite does not list its functions');
        }
        // Reading a schema adds these.
        $session['module_list'] = array_filter(
            array_column($session['module_list'], 0),
            static fn (string $module) => !str_starts_with($module, 'pragma_')
        );
        sort($session['module_list']);
        $session['database_list'] = array_filter(
            array_column($session['database_list'], 2, 1),
            static fn (string $name) => 'temp' !== $name,
            \ARRAY_FILTER_USE_KEY
        );
        $session['list of temporary tables'] = $this->rows('SELECT name FROM sqlite_temp_master');
        $session['case_sensitive_like'] = $this->rows("SELECT 'a' LIKE 'A'");

        return $session;
    }

    /** @return list<list<mixed>> */
    private function rows(string $sql): array
    {
        $connection = $this->connection;
        if ($connection instanceof \PgSql\Connection) {
            return pg_fetch_all(pg_query($connection, $sql), \PGSQL_NUM);
        }
        $result = $connection->query($sql);
        if ($connection instanceof \SQLite3) {
            for ($rows = []; $row = $result->fetchArray(\SQLITE3_NUM);) {
                $rows[] = $row;
            }

            return $rows;
        }

        return $connection instanceof \PDO
            ? $result->fetchAll(\PDO::FETCH_NUM)
            : $result->fetch_all();
    }
}
