//! The files of the Laravel application of these tests: its jobs, schedule, configuration, scripts.

pub const JOB: &str = r#"<?php
namespace App;
use Illuminate\Bus\Queueable;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Queue\InteractsWithQueue;
final class Work implements ShouldQueue
{
    use InteractsWithQueue, Queueable;
    public $tries = 2;
    public $backoff;
    public $timeout = 20;
    private static int $inProcess = 0;
    public function __construct(private string $do) {
        $this->backoff = $do === 'back off' ? 3600 : 0;
        $this->timeout = $do === 'hang' ? (int) getenv('HANG') : 20;
    }
    public function handle(): void
    {
        $others = self::$inProcess++;
        $queue = $this->job->getConnectionName().'/'.$this->job->getQueue();
        Notes::note("$this->do, attempt {$this->attempts()} of $queue, $others before");
        match ($this->do) {
            'throw', 'back off' => throw new \RuntimeException('thrown by the job'),
            'release' => $this->attempts() === 1 && $this->release(0),
            'release at' => $this->release(now()->addHour()),
            'release for' => $this->release(new \DateInterval('PT1H')),
            'release the job at' => $this->job->release(now()->addHour()),
            'release the job for' => $this->job->release(new \DateInterval('PT1H')),
            'command' => app(\Illuminate\Contracts\Console\Kernel::class)->call('package:clean'),
            'environment' => [
                Notes::note(ini_get('max_execution_time').' '.getcwd().stream_get_contents(STDIN)),
                fwrite(STDERR, "said to STDERR\n"),
                fwrite(STDOUT, "said to STDOUT\n"),
            ],
            'fail' => $this->fail(new \RuntimeException('failed by the job')),
            'exit' => exit(3),
            'kill' => posix_kill(getmypid(), SIGKILL),
            'hang' => sleep(600),
            'memory' => str_repeat('x', 1 << 40),
            'wait' => Notes::wait(),
            'redis' => app('redis')->connection()->incr('touched'),
            'well' => null,
        };
    }
    public function failed(\Throwable $why): void
    {
        Notes::note("$this->do failed: {$why->getMessage()}");
    }
}
"#;

/// The console kernel with the schedule.
pub const KERNEL: &str = r#"<?php
namespace App;
use Illuminate\Console\Scheduling\Schedule;
final class ConsoleKernel extends \Illuminate\Foundation\Console\Kernel
{
    protected function schedule(Schedule $schedule)
    {
        $file = getenv('NOTES');
        $schedule->call(static fn () => Notes::note('called'))->everyMinute()->name('caller');
        $schedule->call(static fn () => throw new \RuntimeException('thrown by an event'))
            ->everyMinute()->name('thrower')->after(static fn () => Notes::note('after'));
        $schedule->call(static fn () => Notes::note('skipped'))->everyMinute()->skip(true);
        $schedule->call(static fn () => Notes::note('another day'))
            ->cron('* * * '.(date('n') % 12 + 1).' *');
        $schedule->exec("sh -c 'echo executed >> $file'")->everyMinute()
            ->before(static fn () => Notes::note('before'));
        $schedule->exec('exit 9')->everyMinute();
        $held = $schedule->call(static fn () => Notes::note('overlapped'))
            ->everyMinute()->name('held')->withoutOverlapping();
        $held->mutex->create($held);
        $absent = $schedule->call(static fn () => Notes::note('absent'))
            ->everyMinute()->name('absent')->withoutOverlapping()->when(false);
        $absent->mutex->create($absent);
    }
}
"#;

pub const NOTES: &str = r#"<?php
namespace App;
final class Notes
{
    public static function note(string $line): void
    {
        file_put_contents(getenv('NOTES'), "$line\n", FILE_APPEND | LOCK_EX);
    }
    public static function wait(): void
    {
        while (!file_exists(getenv('NOTES').'.go')) {
            usleep(5000);
            clearstatcache();
        }
    }
}
"#;

pub const QUEUE: &str = r#"<?php
return [
    'default' => getenv('QUEUE_CONNECTION') ?: 'jobs',
    'connections' => [
        'sync' => ['driver' => 'sync'],
        'redis' => [
            'driver' => 'redis',
            'queue' => 'mails',
            'retry_after' => 30,
            'block_for' => null,
        ],
        'sqs' => [
            'driver' => 'sqs',
            'key' => 'key',
            'secret' => 'hidden',
            'prefix' => getenv('SQS_PREFIX'),
            'suffix' => '-test',
            'queue' => getenv('SQS_QUEUE'),
            'region' => 'eu-central-1',
            'overflow' => ['enabled' => (bool) getenv('SQS_OVERFLOW')],
        ],
        'jobs' => [
            'driver' => 'database',
            'table' => 'jobs',
            'queue' => 'mails',
            'retry_after' => 30,
        ],
    ],
    'failed' => [
        'driver' => 'database-uuids',
        'database' => getenv('FAILED_DATABASE') ?: getenv('DB_CONNECTION') ?: 'app',
        'table' => 'failed_jobs',
    ],
];
"#;

pub const DATABASE: &str = r#"<?php
return [
    'default' => getenv('DB_CONNECTION') ?: 'app',
    'connections' => [
        'app' => ['driver' => 'sqlite', 'database' => getenv('DATABASE'), 'prefix' => ''],
        'mysql' => [
            'driver' => 'mysql',
            'host' => '127.0.0.1',
            'port' => getenv('DB_PORT'),
            'database' => getenv('DATABASE'),
            'username' => 'surus',
            'password' => getenv('DB_PASSWORD'),
            'unix_socket' => '',
            'charset' => 'utf8mb4',
            'collation' => 'utf8mb4_unicode_ci',
            'prefix' => '',
        ],
        'pgsql' => [
            'driver' => 'pgsql',
            'host' => '127.0.0.1',
            'port' => getenv('DB_PORT'),
            'database' => getenv('DATABASE'),
            'username' => 'surus',
            'password' => getenv('DB_PASSWORD'),
            'charset' => 'utf8',
            'prefix' => '',
            'schema' => 'public',
            'sslmode' => 'prefer',
        ],
    ],
    'redis' => [
        'client' => 'phpredis',
        'options' => ['prefix' => 'app_'],
        'default' => ['host' => '127.0.0.1', 'port' => getenv('REDIS_PORT'), 'database' => '0'],
    ],
];
"#;

/// Pushes the jobs that its arguments name.
pub const PUSH: &str = r#"<?php
require __DIR__.'/vendor/autoload.php';
$app = require __DIR__.'/bootstrap/app.php';
$app->make(Illuminate\Contracts\Console\Kernel::class)->bootstrap();
class_exists(Aws\Sqs\SqsClient::class, false) || require __DIR__.'/app/SqsClient.php';
foreach (array_slice($argv, 1) as $what) {
    $queue = $app->make('queue')->connection();
    str_starts_with($what, 'later ')
        ? $queue->later(1, new App\Work(substr($what, 6)))
        : $queue->push(new App\Work($what));
}
"#;

/// Stands in for Amazon's library, which Debian does not package.
pub const SQS_CLIENT: &str = r#"<?php
namespace Aws\Sqs;
class SqsClient
{
    public function __call(string $action, array $arguments)
    {
        $action = 'AmazonSQS.'.ucfirst($action);
        $http = [
            'method' => 'POST',
            'header' => ['Content-Type: application/x-amz-json-1.0', "X-Amz-Target: $action"],
            'content' => json_encode($arguments[0]),
        ];
        $url = parse_url($arguments[0]['QueueUrl']);
        $context = stream_context_create(['http' => $http]);
        $answer = file_get_contents("http://$url[host]:$url[port]/", false, $context);
        return new \Illuminate\Support\Collection(json_decode($answer, true));
    }
}
"#;

/// Does with a job of the queue `theirs` what its argument says.
pub const THEIRS: &str = r#"<?php
require __DIR__.'/vendor/autoload.php';
$app = require __DIR__.'/bootstrap/app.php';
$app->make(Illuminate\Contracts\Console\Kernel::class)->bootstrap();
$job = $app->make('queue')->connection()->pop('theirs');
match ($argv[1]) {
    'pop' => null,
    'release' => $job->release(3600),
};
"#;
