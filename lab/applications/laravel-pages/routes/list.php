<?php

use App\Http\Controllers\Posts;
use Illuminate\Support\Facades\Route;

Route::get('/list', [Posts::class, 'list']);
