<?php

namespace App\Http\Controllers;

use App\Models\Note;
use Illuminate\Contracts\View\View;

final class Posts
{
    public function list(): View
    {
        return view('list', ['notes' => Note::orderBy('id')->paginate(20)]);
    }
}
