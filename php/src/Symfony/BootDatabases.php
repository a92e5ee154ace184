<?php

namespace Surus\Symfony;

use Surus\DatabaseSession;

/**
 * Closes Doctrine's connections that the boot has opened: the processes that serve would share
 * them.
 */
final class BootDatabases
{
    /** @var ?\WeakMap<object, true> the connections that stay open */
    private static ?\WeakMap $open = null;

    /**
     * Connections that a new one does not equal stay open.
     *
     * @param array<string, object> $connections
     */
    public static function close(array $connections): void
    {
        self::$open = null;
        foreach ($connections as $name => $connection) {
            if ($reason = self::reasonToKeep($connection)) {
                error_log("surus: the boot's database connection $name stays open: $reason");
                self::$open ??= new \WeakMap();
                self::$open[$connection] = true;
            } else {
                $connection->close();
            }
        }
    }

    /**
     * Closes a connection, unless it is one of the boot and as the boot has left it. A worker that
     * closes such a connection has to be replaced.
     */
    public static function closeUnlessKept(object $connection): void
    {
        $isOpen = isset(self::$open[$connection]) && $connection->isConnected();
        if (!$isOpen || self::isInTransaction($connection)) {
            $connection->close();
        }
    }

    private static function reasonToKeep(object $connection): ?string
    {
        if (!method_exists($connection, 'getDriver') || !$connection->isConnected()) {
            return null;
        }
        if (self::isInTransaction($connection)) {
            return 'it has an open transaction';
        }
        if (method_exists($connection, 'ensureConnectedToPrimary')) {
            return 'Surus does not compare sessions of replicas';
        }

        return DatabaseSession::difference(
            static fn (): mixed => self::native($connection),
            static function () use ($connection): mixed {
                // Connects as a request would, with Doctrine's listeners and middlewares.
                $new = clone $connection;
                $new->close();

                return self::native($new);
            },
        );
    }

    /** Without auto-commit, Doctrine begins one as soon as it connects. */
    private static function isInTransaction(object $connection): bool
    {
        return $connection->getTransactionNestingLevel() > ($connection->isAutoCommit() ? 0 : 1);
    }

    /** What PHP has for it, so that no statement of Surus is logged. */
    private static function native(object $connection): mixed
    {
        if (method_exists($connection, 'getNativeConnection')) {
            return $connection->getNativeConnection();
        }
        // Before Doctrine DBAL 3.3.
        while (!$connection instanceof \PDO && method_exists($connection, 'getWrappedConnection')) {
            $connection = $connection->getWrappedConnection();
        }

        return $connection;
    }
}
