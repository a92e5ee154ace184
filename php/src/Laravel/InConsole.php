<?php

namespace Surus\Laravel;

/**
 * Makes jobs and commands run in Laravel's console, as under `artisan`. Packages register their
 * commands and schedules only there.
 */
final class InConsole
{
    /** Takes effect before the application is bootstrapped. */
    public static function begin(): void
    {
        // The setting of the application's environment comes first.
        if (false === getenv('APP_RUNNING_IN_CONSOLE')) {
            $_ENV['APP_RUNNING_IN_CONSOLE'] = 'true';
        }
    }
}
