<?php

namespace Surus\Laravel;

use Illuminate\Database\Connection;
use Illuminate\Foundation\Application;

/** Keeps connections to databases open between requests, without what a request did to them. */
final class Databases
{
    private readonly mixed $configuration;

    /** @var \WeakMap<\PDO, true> those that were opened as the boot's configuration says */
    private readonly \WeakMap $known;

    /** @var \WeakMap<\Closure, true> openers that add to $known */
    private readonly \WeakMap $openers;

    public function __construct(private readonly Application $app)
    {
        $this->configuration = $app->make('config')->get('database');
        $this->known = new \WeakMap();
        $this->openers = new \WeakMap();
    }

    /** Call this before a request. */
    public function watch(): void
    {
        foreach ($this->connections() as $connection) {
            $pdo = $connection->getRawPdo();
            if ($pdo !== $watched = $this->watched($pdo)) {
                $connection->setPdo($watched);
            }
            $readPdo = $connection->getRawReadPdo();
            if ($readPdo !== $watched = $this->watched($readPdo)) {
                $connection->setReadPdo($watched);
            }
        }
    }

    /**
     * Rolls back open transactions, and closes connections of which the request may have changed
     * more.
     *
     * @return list<Connection> closed ones
     */
    public function release(): array
    {
        $closed = [];
        // A request that changed the configuration may have connected to another database.
        $changed = $this->app->make('config')->get('database') !== $this->configuration;
        foreach ($this->connections() as $connection) {
            try {
                $lost = false;
                if ($connection->transactionLevel() > 0) {
                    $connection->rollBack(0);
                }
                foreach ([$connection->getRawPdo(), $connection->getRawReadPdo()] as $pdo) {
                    // Begun without Laravel's knowledge.
                    if ($pdo instanceof \PDO && $pdo->inTransaction()) {
                        $pdo->rollBack();
                    }
                    $lost = $lost || ($pdo instanceof \PDO && !isset($this->known[$pdo]))
                        || ($pdo instanceof \Closure && !isset($this->openers[$pdo]));
                }
            } catch (\Throwable) {
                $lost = true; // a new connection has no transaction
            }
            if ($changed || $lost) {
                $connection->disconnect();
                $closed[] = $connection;
            }
        }

        return $closed;
    }

    /** @return iterable<Connection> */
    private function connections(): iterable
    {
        return $this->app->resolved('db') ? $this->app->make('db')->getConnections() : [];
    }

    private function watched(mixed $pdo): mixed
    {
        if ($pdo instanceof \PDO) {
            $this->known[$pdo] = true;
        }
        if (!$pdo instanceof \Closure || isset($this->openers[$pdo])) {
            return $pdo;
        }
        $known = $this->known;
        $opener = static function () use ($pdo, $known): mixed {
            $opened = $pdo();
            if ($opened instanceof \PDO) {
                $known[$opened] = true;
            }

            return $opened;
        };
        $this->openers[$opener] = true;

        return $opener;
    }
}
