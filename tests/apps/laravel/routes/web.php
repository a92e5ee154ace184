<?php

use App\Http\Controllers\Leaves;
use App\Http\Controllers\Pages;
use App\Http\Controllers\Traffic;
use App\Http\Controllers\Visitor;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Auth;
use Illuminate\Support\Facades\Route;

Route::get('/page', [Pages::class, 'page'])->name('page');
Route::post('/login', [Pages::class, 'login']);
Route::post('/logout', [Pages::class, 'logout']);
Route::get('/who', [Visitor::class, 'who'])->name('who');
Route::get('/notes/{id}', [Visitor::class, 'notes'])->name('notes');
Route::get('/change', [Pages::class, 'change']);
Route::get('/transaction', [Pages::class, 'transaction']);
Route::get('/log', [Pages::class, 'log']);
Route::get('/keeps', [Pages::class, 'keeps']);
Route::get('/terminated', [Pages::class, 'terminated']);
Route::get('/guarded', static fn () => Auth::user()->name)->middleware('auth');
Route::get('/dies', static function (Request $request): never {
    config(['app.name' => 'dead']);
    app('url')->forceRootUrl('https://dead.example');
    Auth::user();
    echo 'before';
    exit;
});
Route::get('/throws', static function (Request $request): never {
    config(['app.name' => 'thrown']);
    throw new RuntimeException('thrown');
});
Route::get('/login', static fn () => redirect('/page'))->name('login');
foreach (['built', 'readonly', 'exits', 'routes', 'rows', 'transaction', 'pdo', 'reconnects'] as $what) {
    Route::get("/leaves/$what", [Leaves::class, $what]);
}
Route::get('/leaves/static', [Leaves::class, 'initializes']);
foreach (['cookie', 'cart', 'stream', 'file', 'version', 'greeting', 'denied', 'cached'] as $what) {
    Route::get("/$what", [Traffic::class, $what]);
}
Route::post('/upload', [Traffic::class, 'upload']);
Route::get('/bound/{note}', [Traffic::class, 'bound']);
