<?php

namespace Surus\Laravel;

use Illuminate\Auth\AuthManager;
use Illuminate\Foundation\Application;
use Illuminate\Http\Request;

/**
 * A request's visitor-specific objects: the request itself, the session, the users that guards have
 * found.
 */
final class Visitor
{
    /** @return list<object> */
    public static function of(Application $app, Request $request): array
    {
        $found = [$request];
        if ($request->hasSession()) {
            $found[] = $request->session();
        }
        $auth = $app->resolved('auth') ? $app->make('auth') : null;
        if ($auth instanceof AuthManager) {
            $guards = \Closure::bind(
                static fn (AuthManager $auth) => $auth->guards,
                null,
                AuthManager::class
            )($auth);
            foreach ($guards as $guard) {
                // Only a user who is known already, since a look-up may query a database.
                if (method_exists($guard, 'hasUser') && $guard->hasUser()) {
                    $found[] = $guard->user();
                }
            }
        }

        return $found;
    }
}
