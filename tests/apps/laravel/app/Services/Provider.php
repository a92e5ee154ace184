<?php

namespace App\Services;

use App\Listeners\Heard;
use Illuminate\Support\Facades\Auth;
use Illuminate\Support\Facades\Event;
use Illuminate\Support\Facades\Gate;
use Illuminate\Support\Facades\Validator;
use Illuminate\Support\Facades\View;
use Illuminate\Support\ServiceProvider;

final class Provider extends ServiceProvider
{
    public function register(): void
    {
        $this->app->singleton(Keeper::class);
        $this->app->singleton(Early::class);
        $this->app->singleton(Tenants::class);
        $this->app->singleton(Deep::class);
    }

    public function boot(): void
    {
        $this->app->make(Early::class);
        $this->app->make(Tenants::class);
        if (getenv('DEEP')) {
            $this->app->make(Deep::class);
        }
        Event::listen('asked', Heard::class);
        View::share('brand', 'Surus');
        View::composer('page', static fn ($view) => $view->with('composed', Auth::user()->name ?? 'nobody'));
        Gate::define('own', static fn ($user, string $name) => $user->name === $name);
        Validator::extend('shout', static fn ($attribute, $value) => strtoupper($value) === $value);
        Auth::viaRequest('header', static fn ($request) => null);
    }
}
