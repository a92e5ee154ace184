<?php

namespace App\Http\Controllers;

use App\Services\Tenants;
use Illuminate\Http\Request;
use Illuminate\Routing\Controller;
use Illuminate\Support\Facades\DB;
use Illuminate\Support\Facades\Route;

/** Leaves behind what is hard to restore. */
final class Leaves extends Controller
{
    private readonly string $asked;

    public function __construct(Request $request)
    {
        $this->asked = $request->query('q', '');
    }

    public function built()
    {
        return response($this->asked);
    }

    public function initializes(Tenants $tenants)
    {
        return response($tenants->named($this->asked));
    }

    public function readonly(Tenants $tenants)
    {
        return response($tenants->host($this->asked));
    }

    public function exits(): never
    {
        echo \App\Services\Leaves::named($this->asked);
        exit;
    }

    public function routes()
    {
        foreach (Route::getRoutes() as $route) {
            $route->gatherMiddleware();
        }

        return response('done');
    }

    public function rows()
    {
        return response((string) DB::table('notes')->count());
    }

    public function transaction()
    {
        DB::getPdo()->beginTransaction();
        DB::table('notes')->insert(['text' => 'lost', 'owner' => 'ada']);

        return $this->rows();
    }

    public function pdo()
    {
        DB::connection()->setPdo(self::other())->setReadPdo(null);

        return $this->rows();
    }

    /** Only the connection shows that the configuration was another for a while. */
    public function reconnects()
    {
        $name = 'database.connections.main.database';
        $before = config($name);
        config([$name => ':memory:']);
        DB::reconnect();
        config([$name => $before]);
        DB::statement('CREATE TABLE notes (id INTEGER)');

        return $this->rows();
    }

    private static function other(): \PDO
    {
        $pdo = new \PDO('sqlite::memory:');
        $pdo->exec('CREATE TABLE notes (id INTEGER)');

        return $pdo;
    }
}
