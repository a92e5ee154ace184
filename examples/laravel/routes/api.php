<?php

use App\Http\Controllers\Api;
use Illuminate\Support\Facades\Route;

Route::get('/hello', [Api::class, 'hello']);
Route::post('/echo', [Api::class, 'echo']);
