<?php

namespace App\Http\Controllers;

use App\Models\Note;
use App\Models\User;
use Illuminate\Http\Request;
use Illuminate\Pagination\Paginator;
use Illuminate\Support\Facades\App;
use Illuminate\Support\Facades\Auth;
use Illuminate\Support\Facades\Cookie;
use Illuminate\Support\Facades\DB;
use Illuminate\Support\Facades\Event;
use Illuminate\Support\Facades\Gate;
use Illuminate\Support\Facades\Lang;
use Illuminate\Support\Facades\Log;
use Illuminate\Support\Facades\URL;
use Illuminate\Support\Facades\Validator;
use Illuminate\Support\Facades\View;

final class Pages
{
    public function page()
    {
        return view('page');
    }

    public function login(Request $request)
    {
        $fields = $request->validate(['name' => 'required|string|min:3', 'password' => 'required']);
        if (!Auth::attempt($fields)) {
            return back()->withErrors(['name' => 'nobody of that name'])->withInput();
        }
        $request->session()->regenerate();
        $request->session()->put('name', $fields['name']);

        return redirect('/page')->with('status', "welcome $fields[name]");
    }

    public function logout(Request $request)
    {
        Auth::logout();
        $request->session()->invalidate();

        return redirect('/page')->with('status', 'bye');
    }

    /** Changes everything that an application may change at run time. */
    public function change(Request $request)
    {
        $name = Auth::user()->name ?? 'nobody';
        config(['app.name' => "of $name", 'app.added' => $name, 'session.lifetime' => 1]);
        App::setLocale('de');
        Lang::addLines(['messages.late' => "of $name"], 'en');
        date_default_timezone_set('Asia/Tokyo');
        setlocale(LC_TIME, 'C.UTF-8');
        View::share('tenant', $name);
        View::share('brand', $name);
        URL::forceRootUrl("https://$name.example");
        URL::forceScheme('https');
        URL::defaults(['id' => $name]);
        Paginator::currentPageResolver(static fn () => 7);
        Gate::define('changed', static fn () => true);
        Gate::before(static fn () => true);
        Validator::extend('shout', static fn () => false);
        Event::listen('changed', static fn () => "heard of $name");
        Event::listen('asked', static fn () => "also of $name");
        Note::addGlobalScope('changed', static fn ($query) => $query->where('owner', $name));
        Note::retrieved(static function (Note $note) use ($name): void {
            $note->seen = "by $name";
        });
        Cookie::queue('changed', $name);
        Auth::shouldUse('other');
        app()->instance('changed', $name);
        app()->bind(\App\Services\Keeper::class, static fn () => throw new \RuntimeException("the keeper of $name"));
        app()->terminating(static function () use ($name): void {
            // A terminating callback of a warm-up must not run after a client's request.
            if (!isset($_SERVER['SURUS_WARMUP'])) {
                file_put_contents(storage_path('terminated'), "$name\n", FILE_APPEND);
            }
        });
        Log::withContext(['visitor' => $name]);
        app('router')->pushMiddlewareToGroup('web', \App\Http\Refuse::class);
        DB::listen(static fn () => throw new \RuntimeException("a query of $name"));

        return response()->json('changed');
    }

    public function transaction()
    {
        DB::enableQueryLog();
        DB::beginTransaction();
        DB::table('notes')->insert(['text' => 'lost', 'owner' => 'ada']);

        return response()->json(DB::table('notes')->count());
    }

    public function log()
    {
        return response()->json([DB::transactionLevel(), DB::getQueryLog(), DB::table('notes')->count()]);
    }

    /** Keeps state that the runner cannot restore. */
    public function keeps(Request $request)
    {
        static $kept;
        $kept ??= $request;

        return response()->json($kept->query('q'));
    }

    public function terminated()
    {
        $file = storage_path('terminated');

        return response()->json(is_file($file) ? file($file) : []);
    }
}
