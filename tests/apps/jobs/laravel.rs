//! Jobs of Laravel.

use serde_json::{Value, json};

use super::{NOTES, Notes, alone, event, message};
use crate::events::{invoke, serve, with_events};
use crate::site::{Site, installed};

const JOB: &str = r#"<?php
namespace App;
use Illuminate\Bus\Queueable;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Queue\InteractsWithQueue;
use Illuminate\Support\Carbon;
final class Work implements ShouldQueue
{
    use InteractsWithQueue, Queueable;
    public $tries = 3;
    public $backoff;
    public function __construct(private string $do)
    {
        $this->backoff = $do === 'back off' ? 45 : null;
    }
    public function handle(): void
    {
        $job = "{$this->job->getJobId()} of {$this->job->getQueue()}";
        Notes::note("$this->do, attempt {$this->attempts()}, $job");
        match ($this->do) {
            'throw', 'back off' => throw new \RuntimeException('thrown by the job'),
            'release' => $this->release(60),
            'release for' => $this->releaseForAnInterval(),
            'fail' => $this->fail(new \RuntimeException('failed by the job')),
            'delete' => $this->delete(),
            'well' => null,
        };
    }
    private function releaseForAnInterval(): void
    {
        // The clock stands still, so that the interval has the same seconds for Laravel.
        Carbon::setTestNow(Carbon::now());
        $this->release(new \DateInterval('PT90S'));
        Carbon::setTestNow();
    }
    public function failed(\Throwable $why): void { Notes::note("failed: {$why->getMessage()}"); }
}
"#;

/// The library encodes the jobs: an event that is not a batch asks for the payload.
const LARAVEL: &str = r#"<?php
$app = require __DIR__.'/bootstrap/app.php';
$app->singleton(
    Illuminate\Contracts\Console\Kernel::class,
    Illuminate\Foundation\Console\Kernel::class,
);
$queue = new Surus\Lambda\Laravel\Queue($app);
$app->instance('queue.failer', new App\Notes());
return static function (array $event, $context) use ($app, $queue) {
    if (isset($event['make'])) {
        $null = new Illuminate\Queue\NullQueue();
        $null->setContainer($app);
        $create = new ReflectionMethod($null, 'createPayload');
        return $create->invoke($null, new App\Work($event['make']), 'jobs', '');
    }
    if (isset($event['console'])) {
        return $app->runningInConsole();
    }
    if (isset($event['connected'])) {
        require_once __DIR__.'/app/Sqs.php';
        $app['config']->set('queue.connections.sqs', ['driver' => 'sqs']);
        $app['queue']->addConnector('sqs', static fn () => new class {
            public function connect()
            {
                $client = new Aws\Sqs\SqsClient();
                return new Illuminate\Queue\SqsQueue($client, 'default', 'https://sqs.test/1');
            }
        });
    }
    if (isset($event['overflow'])) {
        $app['config']->set('queue.connections.sqs.overflow', $event['overflow']);
        $app->instance('cache', new App\Payloads($event['payloads']));
    }
    return $queue->handle($event, $context);
};
"#;

/// Stands in for a cache that keeps payloads too large for SQS.
const PAYLOADS: &str = r#"<?php
namespace App;
final class Payloads
{
    public function __construct(private array $payloads)
    {
    }
    public function store(?string $name): self
    {
        return 'large' === $name ? $this : throw new \LogicException("store $name");
    }
    public function get(string $key): ?string
    {
        return $this->payloads[$key] ?? null;
    }
    public function forget(string $key): void
    {
        Notes::note("forgotten: $key");
    }
}
"#;

/// Stands in for Amazon's library, which Debian does not package.
const SQS: &str = r#"<?php
namespace Aws\Sqs;
class SqsClient
{
    public function changeMessageVisibility(array $asked): void
    {
        $asked['ReceiptHandle'] !== 'refused' || throw new \RuntimeException('AccessDenied');
        $receipt = "$asked[ReceiptHandle] of $asked[QueueUrl]";
        \App\Notes::note("$receipt in $asked[VisibilityTimeout] s");
    }
}
"#;

const ARTISAN: &str = r#"<?php
$app = require __DIR__.'/bootstrap/app.php';
$app->singleton(
    Illuminate\Contracts\Console\Kernel::class,
    Illuminate\Foundation\Console\Kernel::class,
);
$kernel = $app->make(Illuminate\Contracts\Console\Kernel::class);
$kernel->command('greet {name} {--fail}', function () {
    $this->line('Hello, '.$this->argument('name'));
    $this->getLaravel()->runningInConsole() || $this->line('outside of the console');
    return (int) $this->option('fail');
});
return $kernel;
"#;

#[test]
fn laravel_jobs_run_and_failed_ones_are_reported() {
    installed(
        "/usr/share/php/Illuminate/autoload.php",
        "php-laravel-framework",
    );
    let site = Site::laravel(&[])
        .replace(
            "config/app.php",
            "Illuminate\\Pipeline",
            "Illuminate\\Queue\\QueueServiceProvider::class,\n        Illuminate\\Pipeline",
        )
        .write("app/Work.php", JOB)
        .write("app/Notes.php", NOTES)
        .write("app/Sqs.php", SQS)
        .write("app/Payloads.php", PAYLOADS)
        .write("handler.php", LARAVEL)
        .write("console.php", ARTISAN)
        .vendor();
    let site = with_events(site);
    let notes = Notes(site.tmp().join("notes"));
    let storage = site.tmp().join("storage");
    let env = [
        ("SURUS_ENV_NOTES", notes.0.to_str().unwrap()),
        ("SURUS_ENV_APP_STORAGE", storage.to_str().unwrap()),
    ];
    for engine in ["classic", "worker", "rewind"] {
        let surus = serve(&site, engine, "handler.php", &env);
        let payload = |what: &str| -> String {
            let made = invoke(&surus, &json!({ "make": what })).ok().json();
            assert!(
                made.as_str()
                    .unwrap()
                    .contains(r#"\"maxTries\":3"#.replace('\\', "").as_str()),
                "{made}"
            );
            made.as_str().unwrap().to_string()
        };
        let (well, throw, release) = (payload("well"), payload("throw"), payload("release"));

        assert_eq!(alone(&surus, &message("a", &well, 1)), Ok(()));
        notes.are(&["well, attempt 1, a of jobs"]);
        // A failed message stays in the queue until its last attempt.
        assert_eq!(
            alone(&surus, &message("b", &throw, 2)),
            Err("thrown by the job".into())
        );
        notes.are(&["throw, attempt 2, b of jobs"]);
        assert_eq!(alone(&surus, &message("b", &throw, 3)), Ok(()));
        notes.are(&[
            "throw, attempt 3, b of jobs",
            "failed: thrown by the job",
            "recorded: sqs jobs App\\Work thrown by the job",
        ]);
        // A message that has killed its workers is not run again.
        assert_eq!(alone(&surus, &message("c", &well, 4)), Ok(()));
        let too_often = "App\\Work has been attempted too many times.";
        notes.are(&[
            &format!("failed: {too_often}"),
            &format!("recorded: sqs jobs App\\Work {too_often}"),
        ]);
        let released = alone(&surus, &message("d", &release, 1)).unwrap_err();
        assert_eq!(released, "App\\Work (d) has been released");
        notes.are(&["release, attempt 1, d of jobs"]);
        surus.wait_for_log(|log| {
            log.contains(
                "cannot delay App\\Work (d) by 60 s, so it is delivered again after the visibility \
                    timeout",
            )
        });
        assert_eq!(alone(&surus, &message("e", &payload("fail"), 1)), Ok(()));
        notes.are(&[
            "fail, attempt 1, e of jobs",
            "failed: failed by the job",
            "recorded: sqs jobs App\\Work failed by the job",
        ]);
        assert_eq!(alone(&surus, &message("f", &payload("delete"), 1)), Ok(()));
        notes.are(&["delete, attempt 1, f of jobs"]);

        // One call for all messages names only the failed ones.
        let all = event(&[
            message("1", &well, 1),
            message("2", &throw, 1),
            message("3", &release, 2),
            message("4", &well, 1),
        ]);
        let failed =
            json!({ "batchItemFailures": [{ "itemIdentifier": "2" }, { "itemIdentifier": "3" }] });
        assert_eq!(invoke(&surus, &all).ok().json(), failed, "{engine}");
        // One message was received before, so another order is tried.
        notes.are(&[
            "throw, attempt 1, 2 of jobs",
            "release, attempt 2, 3 of jobs",
            "well, attempt 1, 4 of jobs",
            "well, attempt 1, 1 of jobs",
        ]);

        let console = invoke(&surus, &json!({ "console": true })).ok().json();
        assert_eq!(console, true, "{engine}");

        // With an SQS client, delays are applied; without a delay SQS is not called.
        let delayed = |id: &str, payload: &str, receipt: &str| {
            let mut delayed = message(id, payload, 1);
            delayed["receiptHandle"] = receipt.into();
            let mut event = event(&[delayed]);
            event["connected"] = true.into();
            invoke(&surus, &event).status(500);
        };
        delayed("g", &release, "r-g");
        notes.are(&[
            "release, attempt 1, g of jobs",
            "r-g of https://sqs.test/1/jobs in 60 s",
        ]);
        delayed("n", &payload("release for"), "r-n");
        notes.are(&[
            "release for, attempt 1, n of jobs",
            "r-n of https://sqs.test/1/jobs in 90 s",
        ]);
        delayed("h", &payload("back off"), "r-h");
        notes.are(&[
            "back off, attempt 1, h of jobs",
            "r-h of https://sqs.test/1/jobs in 45 s",
        ]);
        delayed("i", &throw, "r-i");
        notes.are(&["throw, attempt 1, i of jobs"]);
        delayed("j", &release, "refused");
        notes.are(&["release, attempt 1, j of jobs"]);
        surus.wait_for_log(|log| {
            log.contains("cannot delay App\\Work (j) by 60 s") && log.contains("AccessDenied")
        });

        // A pointer stands for a payload that is too large for SQS.
        let pointed = |id: &str, key: &str, overflow: Value| {
            let body = json!({ "@pointer": key }).to_string();
            let mut event = event(&[message(id, &body, 1)]);
            event["overflow"] = overflow;
            event["payloads"] = json!({ "here": well });
            invoke(&surus, &event)
        };
        let overflow = |deletes: bool| {
            let mut overflow = json!({ "enabled": true, "store": "large" });
            overflow["delete_after_processing"] = deletes.into();
            overflow
        };
        pointed("k", "here", overflow(false)).status(200);
        notes.are(&["well, attempt 1, k of jobs"]);
        pointed("l", "here", overflow(true)).status(200);
        notes.are(&["well, attempt 1, l of jobs", "forgotten: here"]);
        for (key, overflow, remedy) in [
            ("gone", overflow(true), "overflow.store of the connection"),
            ("here", json!({}), "set overflow.enabled of the connection"),
        ] {
            let error = pointed("m", key, overflow).status(500).json();
            let why = error["errorMessage"].as_str().unwrap();
            assert!(why.contains(remedy), "{engine}: {why}");
            notes.are(&[]);
        }
        drop(surus);

        let surus = serve(&site, engine, "console.php", &env);
        for _ in 0..2 {
            let answer = invoke(&surus, &json!("greet 'Gisgo Barkas'")).ok().json();
            assert_eq!(
                answer,
                json!({ "exitCode": 0, "output": "Hello, Gisgo Barkas\n" })
            );
            let answer = invoke(&surus, &json!({ "command": "greet Gisgo --fail" })).status(500);
            assert_eq!(answer.json()["exitCode"], 1);
        }
    }
}
