//! Tests that jobs and events run in Laravel's console, where packages register their commands.

use super::super::site::framework;
use super::{Laravel, debian};

/// A package as most are: without the console, it has neither a command nor a scheduled event.
pub const CLASSES: [(&str, &str); 2] = [
    (
        "Package",
        r"final class Package extends \Illuminate\Support\ServiceProvider
{
    public function boot(): void
    {
        if (!$this->app->runningInConsole()) {
            return;
        }
        $this->commands([Clean::class]);
        $this->callAfterResolving(
            \Illuminate\Console\Scheduling\Schedule::class,
            static fn ($schedule) => $schedule->call(static fn () => Notes::note('of a package'))
                ->everyMinute()->name('package'),
        );
    }
}",
    ),
    (
        "Clean",
        r"final class Clean extends \Illuminate\Console\Command
{
    protected $signature = 'package:clean';
    public function handle(): void
    {
        Notes::note('cleaned');
    }
}",
    ),
];

#[test]
fn job_calls_a_command_that_a_package_registers_in_the_console() {
    for (libraries, engine) in [
        (debian(), "rewind"),
        (framework("laravel10"), "classic"),
        (framework("laravel13"), "rewind"),
    ] {
        let laravel = Laravel::new(&libraries);
        laravel.push(&["command"]);
        let work = laravel.start(&["--workers", "1", "--engine", engine]);
        work.wait_until(|| laravel.table.is_empty());
        let notes = laravel.notes();
        assert!(notes.contains(&"cleaned".into()), "{notes:?}");
        let failed = laravel.table.failed();
        assert!(failed.is_empty(), "{failed:?}");
    }
}

#[test]
fn console_of_the_environment_comes_first() {
    let mut laravel = Laravel::new(&debian());
    laravel.set("APP_RUNNING_IN_CONSOLE", "false");
    laravel.push(&["command"]);
    let work = laravel.start(&["--workers", "1"]);
    work.wait_until(|| laravel.table.is_empty());
    let failed = laravel.table.failed();
    assert!(failed[0].2.contains("package:clean"), "{failed:?}");
}
