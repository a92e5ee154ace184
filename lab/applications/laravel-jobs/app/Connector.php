<?php

namespace App;

use Illuminate\Database\Connectors\SQLiteConnector;

/**
 * Connects to SQLite with transactions that lock the database when they begin, as `transaction_mode` of later Laravels does. One that
 * reads first, such as the deletion of a job, would fail if the feeder wrote meanwhile, and the job would stay reserved for 90 s.
 */
final class Connector extends SQLiteConnector
{
    protected function createPdoConnection($dsn, $username, $password, $options): \PDO
    {
        return new class($dsn, $username, $password, $options) extends \PDO {
            private bool $began = false;

            public function beginTransaction(): bool
            {
                return $this->began = false !== $this->exec('BEGIN IMMEDIATE');
            }

            public function commit(): bool
            {
                $this->exec('COMMIT');

                return !$this->began = false;
            }

            public function rollBack(): bool
            {
                $this->began = false;

                return false !== $this->exec('ROLLBACK');
            }

            public function inTransaction(): bool
            {
                return $this->began;
            }
        };
    }
}
