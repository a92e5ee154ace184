<?php

namespace App\Http\Controllers;

use App\Models\Note;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\App;
use Illuminate\Support\Facades\Cache;
use Illuminate\Support\Facades\Cookie;

/** What clients send besides forms, and what they get besides pages. */
final class Traffic
{
    public function upload(Request $request)
    {
        $file = $request->file('file');
        $sum = sha1_file($file->getPathname());
        $moved = $file->move(sys_get_temp_dir(), 'upload-'.bin2hex(random_bytes(8)));
        $size = $moved->getSize();
        unlink($moved->getPathname());

        return response()->json([$file->getClientOriginalName(), $size, $sum, $request->input('note')]);
    }

    public function cookie(Request $request)
    {
        $seen = (string) $request->cookie('seen');
        Cookie::queue('seen', $seen.$request->query('q').',', 60);

        return response()->json([$seen, array_keys($_COOKIE)]);
    }

    public function cart(Request $request)
    {
        if (null !== $item = $request->query('add')) {
            $request->session()->push('cart', $item);
        }

        return response()->json([session('cart'), count(session()->all())]);
    }

    public function stream(Request $request)
    {
        $q = $request->query('q');

        return response()->stream(static function () use ($q): void {
            foreach (range(1, 3) as $part) {
                echo "part $part for $q\n";
                flush();
            }
        }, 200, ['Content-Type' => 'text/plain']);
    }

    public function file()
    {
        return response()->download(__FILE__, 'source.txt', ['Content-Type' => 'text/x-php']);
    }

    public function version(Request $request)
    {
        $response = response('version 1')->setEtag('one');
        $response->isNotModified($request);

        return $response;
    }

    public function body(Request $request)
    {
        return response()->json([$request->method(), $request->json()->all(), $request->header('x-caller')]);
    }

    public function checked(Request $request)
    {
        return response()->json($request->validate(['age' => 'required|integer|min:18', 'name' => 'required|string']));
    }

    public function greeting(Request $request)
    {
        App::setLocale($request->getPreferredLanguage(['en', 'de']));

        return response()->json([App::getLocale(), __('messages.hello'), $request->getLanguages()]);
    }

    public function denied(Request $request)
    {
        abort(403, $request->query('q'));
    }

    public function cached()
    {
        return response()->json([Cache::get('answer'), Cache::remember('answer', 60, static fn () => 42)]);
    }

    public function bound(Note $note)
    {
        return response()->json([$note->id, $note->text, $note->seen]);
    }
}
