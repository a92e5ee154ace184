<?php

use App\Http\Controllers\Reports;
use Illuminate\Support\Facades\Route;

Route::middleware('auth')->group(static function (): void {
    Route::get('/reports', [Reports::class, 'show'])->name('reports');
    Route::post('/reports', [Reports::class, 'add']);
    Route::post('/reports/send', [Reports::class, 'send']);
    Route::post('/reports/burn', [Reports::class, 'burn']);
});
Route::post('/api/reports', [Reports::class, 'write'])->withoutMiddleware('web');
Route::get('/api/reports', [Reports::class, 'read'])->withoutMiddleware('web');
Route::get('/archive', [Reports::class, 'archive'])->name('archive');
Route::get('/{locale}/archive', [Reports::class, 'archive'])->where('locale', 'de|en');
