<?php

namespace App\Http\Controllers;

use Illuminate\Contracts\View\View;
use Illuminate\Http\RedirectResponse;
use Illuminate\Http\Request;

final class Pages
{
    public function hello(string $name): View
    {
        return view('hello', ['name' => $name]);
    }

    public function visits(Request $request): View
    {
        $request->session()->put('visits', $visits = $request->session()->get('visits', 0) + 1);

        return view('visits', ['visits' => $visits, 'name' => $request->session()->get('name')]);
    }

    public function sign(Request $request): RedirectResponse
    {
        $request->session()->put(
            'name',
            $request->validate(['name' => 'required|string|min:2|max:40'])['name']
        );

        return redirect('/visits', 303);
    }
}
