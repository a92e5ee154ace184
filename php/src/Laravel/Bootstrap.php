<?php

namespace Surus\Laravel;

use Illuminate\Contracts\Console\Kernel as ConsoleKernel;
use Illuminate\Contracts\Http\Kernel as HttpKernel;
use Illuminate\Database\Connection;
use Illuminate\Foundation\Application;
use Surus\Engine;

/**
 * Bootstraps an application, and closes the connections that this opens where the processes that
 * serve are copies of this one.
 */
final class Bootstrap
{
    /** @var ?\WeakMap<\PDO, true> what the end of the boot has left open */
    private static ?\WeakMap $open = null;

    private readonly ?BootDatabases $databases;

    public function __construct(
        private readonly Application $app,
        ConsoleKernel|HttpKernel $kernel
    )
    {
        $this->databases = Engine::copiesBoot() ? new BootDatabases($app) : null;
        if (!$app->hasBeenBootstrapped()) {
            $kernel->bootstrap();
        }
    }

    /** Call this when the boot has ended. */
    public function end(): void
    {
        $this->databases?->close();
        $copies = Engine::copiesBoot() && $this->app->resolved('db');
        $all = $copies ? $this->app->make('db')->getConnections() : [];
        foreach ($all as $connection) {
            foreach (self::pdo($connection) as $pdo) {
                self::$open ??= new \WeakMap();
                self::$open[$pdo] = true;
            }
        }
    }

    /**
     * Whether a connection of the boot is as the boot has left it. A worker that closes one has to
     * be replaced.
     */
    public static function keeps(Connection $connection): bool
    {
        $kept = array_filter(
            self::pdo($connection),
            static fn (\PDO $pdo) => isset(self::$open[$pdo])
        );
        $changed = array_filter($kept, static fn (\PDO $pdo) => $pdo->inTransaction());

        return $kept && !$changed;
    }

    /** @return list<\PDO> */
    private static function pdo(Connection $connection): array
    {
        $all = [$connection->getRawPdo(), $connection->getRawReadPdo()];

        return array_filter($all, static fn (mixed $pdo) => $pdo instanceof \PDO);
    }
}
