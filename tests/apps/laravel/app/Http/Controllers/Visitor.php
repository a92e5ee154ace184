<?php

namespace App\Http\Controllers;

use App\Models\Note;
use App\Services\Early;
use App\Services\Keeper;
use App\Services\Statics;
use App\Services\Tenants;
use Illuminate\Contracts\Auth\Guard;
use Illuminate\Contracts\Session\Session;
use Illuminate\Http\Request;
use Illuminate\Pagination\LengthAwarePaginator;
use Illuminate\Routing\Controller;
use Illuminate\Session\Store;
use Illuminate\Support\Facades\Auth;
use Illuminate\Support\Facades\Gate;
use Illuminate\Support\Facades\Validator;

/** Gets everything about a client that can be injected into a controller. */
final class Visitor extends Controller
{
    private string $first;

    public function __construct(
        private Request $request,
        private Session $session,
        private Store $store,
        private Guard $guard,
        private Keeper $keeper,
    ) {
        $this->first = (string) $request->query('q');
    }

    public function who(Request $request, Early $early, Tenants $tenants)
    {
        $tenants->seen[] = $name = $this->guard->user()->name ?? 'nobody';
        $early->tenant .= ", $name";
        Tenants::$last .= ", $name";
        $rule = Validator::make(['a' => 'LOUD', 'b' => $name], ['a' => 'shout']);

        return response()->json([
            'injected' => [$this->request->query('q'), $this->first, $this->session->get('name'), $this->store->get('name'), $name],
            'method' => [$request->query('q'), $request->user()->name ?? null, $request->session()->get('name')],
            'global' => [request('q'), session('name'), Auth::user()->name ?? null, auth()->id()],
            'singletons' => [$this->keeper->request->query('q'), $early->request->query('q'), $early->tenant, $tenants->seen, Tenants::$last],
            'late statics' => [Statics::remember(Auth::user())->name ?? null, Statics::$calls],
            'event' => event('asked'),
            'gate' => [Gate::allows('own', 'ada'), Gate::allows('own', 'bob'), Gate::has('changed')],
            'urls' => [url('/x'), route('who'), url()->full(), url()->previous('/none'), url()->current()],
            'locale' => [app()->getLocale(), __('messages.hello'), trans('messages.late'), \Carbon\Carbon::getLocale()],
            'config' => [config('app.name'), config('app.added'), date_default_timezone_get(), setlocale(LC_TIME, '0')],
            'view' => [view()->shared('brand'), view()->shared('tenant')],
            'page' => [LengthAwarePaginator::resolveCurrentPage(), LengthAwarePaginator::resolveCurrentPath()],
            'notes' => Note::orderBy('id')->get()->map(static fn (Note $note) => "$note->text $note->seen"),
            'rule' => $rule->passes(),
            'route' => [$request->route()->getName(), $request->route('id'), \Illuminate\Support\Facades\Route::currentRouteName()],
            'bound' => app()->bound('changed'),
            'heard' => event('changed'),
        ]);
    }

    public function notes(string $id)
    {
        return response()->json([$id, $this->request->route('id'), $this->first, Note::orderBy('id')->paginate(1)->withQueryString()]);
    }
}
