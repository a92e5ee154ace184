<?php

use App\Http\Controllers\Pages;
use Illuminate\Support\Facades\Route;

Route::redirect('/', '/hello/Hannibal');
Route::get('/hello/{name}', [Pages::class, 'hello']);
Route::get('/visits', [Pages::class, 'visits']);
Route::post('/visits', [Pages::class, 'sign']);
