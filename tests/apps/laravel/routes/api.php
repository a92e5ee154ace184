<?php

use App\Http\Controllers\Traffic;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Route;

Route::get('/json', static fn (Request $request) => response()->json(['q' => $request->query('q'), 'url' => url('/')]));
Route::get('/redirects', static fn () => redirect('/page'));
Route::match(['post', 'put'], '/body', [Traffic::class, 'body']);
Route::post('/checked', [Traffic::class, 'checked']);
