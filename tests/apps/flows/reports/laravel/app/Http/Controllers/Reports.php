<?php

namespace App\Http\Controllers;

use App\Http\Resources\ReportResource;
use App\Mail\Reports as Mailing;
use App\Models\Report;
use App\Models\User;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\App;
use Illuminate\Support\Facades\Auth;
use Illuminate\Support\Facades\Cache;
use Illuminate\Support\Facades\Mail;

/** Reports in a database: pages with a form, data for programs, and mail. */
final class Reports
{
    private const TEXT = 'required|string|min:3|max:80';

    public function show()
    {
        return view('reports', ['reports' => Report::of(Auth::user()->name)->get()]);
    }

    public function add(Request $request)
    {
        $report = new Report($request->validate(['text' => self::TEXT]));
        $report->sender()->associate(Auth::user())->save();

        return redirect('/reports')->with('status', __('reports.written', ['text' => $report->text]));
    }

    /** Answers with the mail as the transport has got it. */
    public function send()
    {
        $name = Auth::user()->name;
        Mail::to("$name@example.org")->send(new Mailing(Report::of($name)->get()));

        return response(file_get_contents(base_path('bin/outbox')))->header('Content-Type', 'text/plain');
    }

    public function burn()
    {
        $burnt = Report::where('sender_id', Auth::id())->delete();

        return redirect('/reports')->with('status', "$burnt reports");
    }

    public function write(Request $request)
    {
        $fields = $request->validate(['sender' => 'required|exists:users,name', 'text' => self::TEXT]);
        $sender = User::firstWhere('name', $fields['sender']);

        return new ReportResource(Report::create(['sender_id' => $sender->id, 'text' => $fields['text']]));
    }

    public function read(Request $request)
    {
        return ReportResource::collection(Report::of($request->query('sender'))->get());
    }

    public function archive(?string $locale = null)
    {
        App::setLocale($locale ?? 'en');
        $reports = Report::of('hannibal')->get();
        $length = static fn () => $reports->sum(static fn (Report $report) => strlen($report->text));

        return view('archive', ['reports' => $reports, 'length' => Cache::store('file')->rememberForever('reports.length', $length)]);
    }
}
