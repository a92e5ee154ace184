<?php
use Illuminate\Support\Facades\Cache;
use Illuminate\Support\Facades\Log;
use Illuminate\Support\Facades\Route;
Route::get('/', static fn () => view('page', ['name' => '<Gisgo>']));
Route::get('/cache', static fn () => Cache::remember('a', 60, static fn () => 'cached'));
Route::get('/log', static function () {
    Log::error('logged by a test');
    return 'logged';
});
Route::get('/visits', static function () {
    session(['visits' => $visits = session('visits', 0) + 1]);
    return "visit $visits";
});
Route::get('/paths', static fn () => [
    app()->getCachedPackagesPath(),
    app()->getCachedServicesPath(),
    is_file(app()->getCachedServicesPath()),
    config('view.compiled'),
    config('logging.default'),
    config('cache.default'),
    config('session.driver'),
]);
