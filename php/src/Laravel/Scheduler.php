<?php

namespace Surus\Laravel;

use Illuminate\Console\Events\ScheduledTaskFailed;
use Illuminate\Console\Events\ScheduledTaskFinished;
use Illuminate\Console\Events\ScheduledTaskSkipped;
use Illuminate\Console\Events\ScheduledTaskStarting;
use Illuminate\Console\Scheduling\Event;
use Illuminate\Console\Scheduling\Schedule;
use Illuminate\Contracts\Console\Kernel;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Foundation\Application;
use Illuminate\Support\Carbon;
use Illuminate\Support\Facades\Date;
use Illuminate\Support\Facades\Facade;
use Surus\Engine;

/**
 * Tells `surus work --schedule` which events of the application's schedule are due, and runs them
 * as `schedule:run` does, each in a process of its own.
 */
final class Scheduler
{
    public function __construct(private readonly Application $app)
    {
        if (!$app->hasBeenBootstrapped()) {
            $app->make(Kernel::class)->bootstrap();
        }
    }

    public function handle(array $asked): ?array
    {
        if (method_exists($this->app, 'forgetScopedInstances')) {
            $this->app->forgetScopedInstances();
        }
        Facade::clearResolvedInstances();
        try {
            return isset($asked['minutes']) ? $this->due(...$asked['minutes']) : $this->run($asked);
        } finally {
            if (Engine::forgets()) {
                Runner::disconnect($this->app);
            }
        }
    }

    /** The events that are due in the minutes from $first to $last, in seconds since 1970. */
    private function due(int $first, int $last): array
    {
        $schedule = $this->app->make(Schedule::class);
        $found = [];
        for ($minute = $first; $minute <= $last; $minute += 60) {
            Date::setTestNow(Carbon::createFromTimestamp($minute, date_default_timezone_get()));
            try {
                foreach ($schedule->events() as $place => $event) {
                    if ($event->isDue($this->app)) {
                        $every = ($event->repeatSeconds ?? null) ?: null;
                        $found[] = [
                            'run' => $place,
                            'name' => self::name($place, $event),
                            'due' => $minute,
                            'every' => $every
                        ];
                    }
                }
            } finally {
                Date::setTestNow();
            }
        }

        return $found;
    }

    private function run(array $asked): ?array
    {
        $schedule = $this->app->make(Schedule::class);
        $event = $schedule->events()[$asked['run']] ?? null;
        if (!$event || $asked['name'] !== self::name($asked['run'], $event)) {
            throw new \RuntimeException("{$asked['name']} is no longer in the schedule");
        }
        $events = $this->app->make('events');
        if (!$event->filtersPass($this->app)) {
            self::tell($events, ScheduledTaskSkipped::class, $event);

            return null;
        }
        $due = Carbon::createFromTimestamp($asked['due'], date_default_timezone_get());
        if ($event->onOneServer && !$schedule->serverShouldRun($event, $due)) {
            return null;
        }
        self::tell($events, ScheduledTaskStarting::class, $event);
        $began = microtime(true);
        try {
            $event->run($this->app);
            $code = $event->runInBackground ? 0 : ($event->exitCode ?? 0);
            if (0 !== $code && false !== $code) {
                throw new \RuntimeException("{$asked['name']} has failed with exit code $code");
            }
            self::tell(
                $events,
                ScheduledTaskFinished::class,
                $event,
                round(microtime(true) - $began, 2)
            );
        } catch (\Throwable $thrown) {
            self::tell($events, ScheduledTaskFailed::class, $event, $thrown);
            $this->app->make(ExceptionHandler::class)->report($thrown);

            throw $thrown;
        }

        return null;
    }

    /** Unique in the schedule: the same command may be in it twice. */
    private static function name(int $place, Event $event): string
    {
        return "$place: ".$event->getSummaryForDisplay();
    }

    /** Not every version of Laravel has these events. */
    private static function tell(object $events, string $class, mixed ...$arguments): void
    {
        if (class_exists($class)) {
            $events->dispatch(new $class(...$arguments));
        }
    }
}
