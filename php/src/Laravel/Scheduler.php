<?php

namespace Surus\Laravel;

use Illuminate\Console\Events\ScheduledTaskFailed;
use Illuminate\Console\Events\ScheduledTaskFinished;
use Illuminate\Console\Events\ScheduledTaskSkipped;
use Illuminate\Console\Events\ScheduledTaskStarting;
use Illuminate\Console\Scheduling\Event;
use Illuminate\Console\Scheduling\EventMutex;
use Illuminate\Console\Scheduling\Schedule;
use Illuminate\Contracts\Cache\Repository as Cache;
use Illuminate\Contracts\Console\Kernel;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Foundation\Application;
use Illuminate\Foundation\Configuration\ApplicationBuilder;
use Illuminate\Foundation\Console\Kernel as ConsoleKernel;
use Illuminate\Support\Carbon;
use Illuminate\Support\Facades\Date;
use Illuminate\Support\Facades\Facade;
use Surus\Engine;
use Surus\Lambda\Log;

/**
 * Tells `surus work --schedule` which events of the application's schedule are due, and runs them
 * as `schedule:run` does, each in a process of its own.
 */
final class Scheduler
{
    public function __construct(private readonly Application $app)
    {
        $kernel = $app->make(Kernel::class);
        $bootstrap = new Bootstrap($app, $kernel);
        if ($kernel instanceof ConsoleKernel && class_exists(ApplicationBuilder::class)) {
            // withSchedule() of Laravel 11 and newer adds its events when Artisan is created.
            \Closure::bind(static fn () => $kernel->getArtisan(), null, ConsoleKernel::class)();
        }
        $bootstrap->end();
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
        $runs = !$this->isHeld($event) && $this->filtersPass($event);
        if ($runs && $event->withoutOverlapping) {
            $runs = !$event->mutex->exists($event);
            $this->tellLock($event, $asked['name'], !$runs);
        }
        if (!$runs) {
            self::tell($events, ScheduledTaskSkipped::class, $event);

            return null;
        }
        if ($event->onOneServer && !$this->isFirst($schedule, $event, $asked['due'])) {
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

    /**
     * Whether no other server has begun this run. Schedule::serverShouldRun() would remember the
     * answer for later runs, which `schedule:run` does for the rest of its minute.
     */
    private function isFirst(Schedule $schedule, Event $event, int $due): bool
    {
        $time = Carbon::createFromTimestamp($due, date_default_timezone_get());
        $time = new class($time->format('c')) extends \DateTimeImmutable {
            /** Laravel tells times apart by hour and minute. Some events run more often. */
            public function format(string $format): string
            {
                $isRepeat = 'Hi' === $format && '00' !== parent::format('s');

                return parent::format($isRepeat ? 'His' : $format);
            }
        };
        $ask = static fn (Schedule $schedule) => $schedule->schedulingMutex->create($event, $time);

        return \Closure::bind($ask, null, Schedule::class)($schedule);
    }

    /** Whether all filters pass but that of withoutOverlapping(), which asks for the lock. */
    private function filtersPass(Event $event): bool
    {
        $mutex = $event->mutex;
        $event->mutex = new class() implements EventMutex {
            public function create(Event $event)
            {
                return true;
            }

            public function exists(Event $event)
            {
                return false;
            }

            public function forget(Event $event)
            {
            }
        };
        try {
            return $event->filtersPass($this->app);
        } finally {
            $event->mutex = $mutex;
        }
    }

    /** Logs that the lock of an event skips it, once until it runs again. */
    private function tellLock(Event $event, string $name, bool $isLocked): void
    {
        $key = 'surus:told:'.$event->mutexName();
        $seconds = 60 * max(1, $event->expiresAt ?? 1440);
        try {
            $cache = $this->app->make(Cache::class);
            $isTold = $isLocked ? !$cache->add($key, true, $seconds) : $cache->forget($key);
        } catch (\Throwable) {
            // The lock may be kept elsewhere.
            $isTold = false;
        }
        if ($isLocked && !$isTold) {
            // A run that was killed leaves its lock behind.
            Log::line("surus: $name is skipped: withoutOverlapping() finds the lock of another run");
        }
    }

    /**
     * Whether an event that is due does not run: after `schedule:pause`, or in maintenance mode,
     * which may have begun since the event was due.
     */
    private function isHeld(Event $event): bool
    {
        if ($this->app->isDownForMaintenance() && !$event->runsInMaintenanceMode()) {
            return true;
        }

        return method_exists($event, 'runsWhenPaused')
            && !$event->runsWhenPaused()
            && (Schedule::$pausable ?? true)
            && $this->app->make(Cache::class)->get('illuminate:schedule:paused', false);
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
