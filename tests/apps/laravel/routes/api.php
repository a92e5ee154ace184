<?php

use Illuminate\Http\Request;
use Illuminate\Support\Facades\Route;

Route::get('/json', static fn (Request $request) => response()->json(['q' => $request->query('q'), 'url' => url('/')]));
Route::get('/redirects', static fn () => redirect('/page'));
