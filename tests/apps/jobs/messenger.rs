//! Messages of Symfony Messenger.

use serde_json::json;

use super::{NOTES, Notes, alone, event, message};
use crate::events::{invoke, serve, with_events};
use crate::site::{Site, example, installed};

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

/// The code of docs/guides/lambda-queues.md.
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
