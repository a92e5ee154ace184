//! Laravel jobs and Symfony Messenger messages as SQS delivers them, encoded by the libraries
//! themselves.

use serde_json::{Value, json};

use super::events::{invoke, serve, with_events};
use super::site::{Site, example, installed};
use crate::common::Surus;

/// An SQS message as Lambda delivers it, received `received` times.
fn message(id: &str, body: &str, received: u32) -> Value {
    json!({
        "messageId": id,
        "body": body,
        "attributes": { "ApproximateReceiveCount": received.to_string() },
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:eu-west-1:1:jobs",
    })
}

fn event(messages: &[Value]) -> Value {
    json!({ "Records": messages })
}

/// Reads the lines that the application has noted since the last call.
struct Notes(std::path::PathBuf);

impl Notes {
    #[track_caller]
    fn are(&self, expected: &[&str]) {
        let noted = std::fs::read_to_string(&self.0).unwrap_or_default();
        // Laravel 8 says more than newer versions.
        let longer = " or run too long. The job may have previously timed out.";
        let noted = noted.replace(longer, ".");
        let _ = std::fs::remove_file(&self.0);
        assert_eq!(noted.lines().collect::<Vec<_>>(), expected);
    }
}

/// Sends one message. An error means that Lambda does not delete it.
#[track_caller]
fn alone(surus: &Surus, message: &Value) -> Result<(), String> {
    let answer = invoke(surus, &event(std::slice::from_ref(message)));
    match answer.status {
        200 => {
            assert_eq!(answer.json(), Value::Null);
            Ok(())
        }
        _ => Err(answer.status(500).json()["errorMessage"]
            .as_str()
            .unwrap()
            .to_string()),
    }
}

const JOB: &str = r#"<?php
namespace App;
use Illuminate\Bus\Queueable;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Queue\InteractsWithQueue;
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
            'fail' => $this->fail(new \RuntimeException('failed by the job')),
            'delete' => $this->delete(),
            'well' => null,
        };
    }
    public function failed(\Throwable $why): void { Notes::note("failed: {$why->getMessage()}"); }
}
"#;

const NOTES: &str = r#"<?php
namespace App;
final class Notes
{
    public static function note(string $line): void
    {
        file_put_contents(getenv('NOTES'), "$line\n", FILE_APPEND);
    }
    // Called like Laravel's recorder of failed jobs.
    public function log($connection, $queue, $payload, $exception): void
    {
        $name = json_decode($payload)->displayName;
        self::note("recorded: $connection $queue $name {$exception->getMessage()}");
    }
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
    return $queue->handle($event, $context);
};
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
                "cannot delay App\\Work (d) by 60 s, so it comes again after the visibility \
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

const MESSAGES: &str = r#"<?php
namespace App;
use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Exception\RecoverableMessageHandlingException;
use Symfony\Component\Messenger\Exception\UnrecoverableMessageHandlingException;
use Symfony\Component\Messenger\Handler\HandlersLocator;
use Symfony\Component\Messenger\MessageBus;
use Symfony\Component\Messenger\Middleware\HandleMessageMiddleware;
use Symfony\Component\Messenger\Middleware\MiddlewareInterface;
use Symfony\Component\Messenger\Middleware\StackInterface;
use Symfony\Component\Messenger\Stamp\BusNameStamp;
use Symfony\Component\Messenger\Stamp\ReceivedStamp;
use Symfony\Component\Messenger\Stamp\RedeliveryStamp;
use Symfony\Component\Messenger\Stamp\TransportMessageIdStamp;
use Symfony\Component\Messenger\Transport\Sender\SenderInterface;
use Symfony\Component\Messenger\Transport\Serialization\PhpSerializer;
use Symfony\Component\Messenger\Transport\Serialization\SerializerInterface;

final class Order { public function __construct(public string $do) {} }
final class Stamps implements MiddlewareInterface {
    public function handle(Envelope $envelope, StackInterface $stack): Envelope {
        Notes::note(sprintf(
            '%s: received %s, bus %s, id %s, retries %d',
            $envelope->getMessage()->do,
            $envelope->last(ReceivedStamp::class)?->getTransportName(),
            $envelope->last(BusNameStamp::class)?->getBusName(),
            $envelope->last(TransportMessageIdStamp::class)?->getId(),
            RedeliveryStamp::getRetryCountFromEnvelope($envelope),
        ));
        return $stack->next()->handle($envelope, $stack);
    }
}
final class Failed implements SenderInterface {
    public function send(Envelope $envelope): Envelope
    {
        Notes::note('failure transport: '.$envelope->getMessage()->do);
        return $envelope;
    }
}
/** The real one, which notes what headers come with a message. */
final class Noting implements SerializerInterface {
    public function __construct(private SerializerInterface $inner) {}
    public function decode(array $encoded): Envelope {
        if ($encoded['headers']) {
            ksort($encoded['headers']);
            Notes::note('headers '.json_encode($encoded['headers'], JSON_UNESCAPED_SLASHES));
        }
        return $this->inner->decode($encoded);
    }
    public function encode(Envelope $envelope): array { return $this->inner->encode($envelope); }
}
$handle = static fn (Order $order) => match ($order->do) {
    'throw' => throw new \RuntimeException('no'),
    'final' => throw new UnrecoverableMessageHandlingException('never'),
    'later' => throw new RecoverableMessageHandlingException('later'),
    default => null,
};
$serializer = new PhpSerializer();
$handlers = new HandlersLocator([Order::class => [$handle]]);
$bus = new MessageBus([new Stamps(), new HandleMessageMiddleware($handlers)]);
$consumer = new \Surus\Lambda\Messenger\Consumer(
    $bus,
    new Noting($serializer),
    'async',
    failureTransport: new Failed(),
);
$order = static fn (string $do) => new Envelope(new Order($do), [new BusNameStamp('orders')]);
return static fn (array $event, $context) => isset($event['make'])
    ? $serializer->encode($order($event['make']))['body']
    : $consumer->handle($event, $context);
"#;

#[test]
fn messenger_messages_run_and_failed_ones_are_reported() {
    installed(
        "/usr/share/php/Symfony/Component/Messenger/autoload.php",
        "php-symfony-messenger",
    );
    let composer = json!({
        "require": { "surus/surus": "@dev" },
        "autoload": { "psr-4": { "App\\": "app/" } },
        "extra": { "debian": ["Symfony/Component/Messenger"] },
    });
    let site = Site::new()
        .write("composer.json", &composer.to_string())
        .write("app/Notes.php", NOTES)
        .vendor()
        .write("handler.php", MESSAGES);
    let site = with_events(site);
    let notes = Notes(site.tmp().join("notes"));
    let env = [("SURUS_ENV_NOTES", notes.0.to_str().unwrap())];
    for engine in ["classic", "worker", "rewind"] {
        let surus = serve(&site, engine, "handler.php", &env);
        let make = |what: &str| -> String {
            let made = invoke(&surus, &json!({ "make": what })).ok().json();
            made.as_str().unwrap().to_string()
        };
        let stamps = |what: &str, id: &str, retries: u32| {
            format!("{what}: received async, bus orders, id {id}, retries {retries}")
        };

        // Text that is not UTF-8, which the library encodes itself.
        for what in ["well", "w\u{f6}ll \u{1f418}\n\"'\\"] {
            assert_eq!(alone(&surus, &message("a", &make(what), 1)), Ok(()));
            let stamps = stamps(what, "a", 0);
            notes.are(&stamps.lines().collect::<Vec<_>>());
        }
        let error = alone(&surus, &message("b", &make("throw"), 3)).unwrap_err();
        assert!(error.contains("no"), "{error}");
        notes.are(&[&stamps("throw", "b", 2)]);
        assert!(alone(&surus, &message("c", &make("later"), 1)).is_err());
        notes.are(&[&stamps("later", "c", 0)]);
        // Another attempt would not help.
        assert_eq!(alone(&surus, &message("d", &make("final"), 1)), Ok(()));
        notes.are(&[&stamps("final", "d", 0), "failure transport: final"]);
        // An unreadable message stays in the queue.
        assert!(alone(&surus, &message("e", "no message", 1)).is_err());
        notes.are(&[]);

        let mut with_headers = message("f", &make("well"), 1);
        with_headers["messageAttributes"] = json!({
            "type": { "stringValue": "App\\Order", "dataType": "String" },
            "n": { "stringValue": "1", "dataType": "Number" },
            "X-Symfony-Messenger": {
                "stringValue": r#"{"X-Message-Stamp-A\\B":"[]"}"#,
                "dataType": "String",
            },
        });
        assert_eq!(alone(&surus, &with_headers), Ok(()));
        notes.are(&[
            r#"headers {"X-Message-Stamp-A\\B":"[]","type":"App\\Order"}"#,
            &stamps("well", "f", 0),
        ]);

        let all = event(&[
            message("1", &make("well"), 1),
            message("2", &make("throw"), 1),
            message("3", &make("final"), 1),
            message("4", "no message", 1),
        ]);
        let failed =
            json!({ "batchItemFailures": [{ "itemIdentifier": "2" }, { "itemIdentifier": "4" }] });
        assert_eq!(invoke(&surus, &all).ok().json(), failed, "{engine}");
        notes.are(&[
            &stamps("well", "1", 0),
            &stamps("throw", "2", 0),
            &stamps("final", "3", 0),
            "failure transport: final",
        ]);
    }
}

/// The code of docs/reference/lambda-events.md.
const OF_THE_KERNEL: &str = r#"<?php
$kernel = new App\Kernel('prod', false);
$kernel->boot();
$consumer = $kernel->getContainer()->get(Surus\Lambda\Messenger\Consumer::class);
return static function (array $event, $context) use ($consumer) {
    if (!isset($event['make'])) {
        return $consumer->handle($event, $context);
    }
    $envelope = (new Symfony\Component\Messenger\Envelope(new App\Greet($event['make'])))
        ->with(new Symfony\Component\Messenger\Stamp\BusNameStamp('messenger.bus.default'));
    $serializer = new Symfony\Component\Messenger\Transport\Serialization\PhpSerializer();
    return $serializer->encode($envelope)['body'];
};
"#;

#[test]
fn symfony_application_consumes_its_messages() {
    installed(
        "/usr/share/php/Symfony/Component/Messenger/autoload.php",
        "php-symfony-messenger",
    );
    installed(
        "/usr/share/php/Symfony/Bundle/FrameworkBundle/autoload.php",
        "php-symfony-framework-bundle",
    );
    let greeter = r#"<?php
        namespace App;
        final class Greeter implements
            \Symfony\Component\Messenger\Handler\MessageHandlerInterface,
            \Symfony\Contracts\Service\ResetInterface {
            public function reset(): void { Notes::note('reset'); }
            public function __invoke(Greet $greet): void {
                Notes::note("Hello, $greet->name");
                'Hasdrubal' === $greet->name && throw new \RuntimeException('not him');
            }
        }"#;
    let site = ["composer.json", "src", "templates"]
        .iter()
        .fold(Site::new(), |site, part| {
            site.copy(&example("symfony").join(part), part)
        })
        .replace(
            "composer.json",
            "\"debian\": [",
            "\"debian\": [\"Symfony/Component/Messenger\", ",
        )
        .replace(
            "src/Kernel.php",
            "'http_method_override'",
            "'messenger' => ['transports' => \
            ['async' => 'in-memory://']], 'http_method_override'",
        )
        .replace(
            "src/Kernel.php",
            "$services->load('App\\\\Form\\\\'",
            "$services->set(Greeter::class);
            $service = '\\Symfony\\Component\\DependencyInjection\\Loader\\Configurator\\service';
            $consumer = $services->set(\\Surus\\Lambda\\Messenger\\Consumer::class);
            $consumer->public()->autowire(false)->args([
                $service('messenger.routable_message_bus'),
                $service('messenger.default_serializer'),
                'async',
                $service('event_dispatcher'),
                $service('services_resetter'),
            ]);
            $services->load('App\\\\Form\\\\'",
        )
        .write(
            "src/Greet.php",
            "<?php namespace App; final class Greet { public function \
            __construct(public string $name) {} }",
        )
        .write("src/Greeter.php", greeter)
        .write("src/Notes.php", NOTES)
        .write("handler.php", OF_THE_KERNEL)
        .vendor();
    let site = with_events(site);
    let notes = Notes(site.tmp().join("notes"));
    let cache = site.tmp().join("cache");
    let env = [
        ("SURUS_ENV_NOTES", notes.0.to_str().unwrap()),
        ("SURUS_ENV_APP_CACHE_DIR", cache.to_str().unwrap()),
    ];
    for engine in ["classic", "worker", "rewind"] {
        let surus = serve(&site, engine, "handler.php", &env);
        let make = |name: &str| -> String {
            let made = invoke(&surus, &json!({ "make": name })).ok().json();
            made.as_str().unwrap().to_string()
        };
        let both = event(&[
            message("1", &make("Hasdrubal"), 1),
            message("2", &make("Mago"), 1),
        ]);
        let failed = json!({ "batchItemFailures": [{ "itemIdentifier": "1" }] });
        assert_eq!(invoke(&surus, &both).ok().json(), failed, "{engine}");
        notes.are(&["Hello, Hasdrubal", "reset", "Hello, Mago", "reset"]);
    }
}
