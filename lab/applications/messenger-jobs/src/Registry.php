<?php

namespace App;

use Doctrine\DBAL\Connection;
use Doctrine\DBAL\DriverManager;
use Doctrine\Persistence\ConnectionRegistry;

/** Stands for Doctrine's bundle. */
final class Registry implements ConnectionRegistry
{
    private ?Connection $connection = null;

    public function getDefaultConnectionName(): string
    {
        return 'default';
    }

    public function getConnection(?string $name = null): object
    {
        return $this->connection ??= DriverManager::getConnection(['driver' => 'pdo_sqlite', 'path' => getenv('DATABASE')]);
    }

    public function getConnections(): array
    {
        return ['default' => $this->getConnection()];
    }

    public function getConnectionNames(): array
    {
        return ['default' => 'default'];
    }
}
