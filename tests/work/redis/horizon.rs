//! Tests which events Laravel Horizon gets of jobs. Debian does not package it, so classes with its
//! names stand in for it.

use super::super::laravel::{Laravel, debian};
use super::super::site::framework;
use super::Redis;

const MAILS: &str = "app_queues:mails";

/// The classes of Horizon that Surus uses, with the signatures of its version 5, and a listener.
const HORIZON: &str = r#"<?php
namespace Laravel\Horizon {
    class RedisQueue extends \Illuminate\Queue\RedisQueue {}
    class JobPayload
    {
        public array $decoded;
        public function __construct(public string $value)
        {
            $this->decoded = json_decode($value, true);
        }
        public function set(array $values)
        {
            $this->decoded = array_merge($this->decoded, $values);
            return $this;
        }
    }
    class Connector extends \Illuminate\Queue\Connectors\RedisConnector
    {
        public function connect(array $config)
        {
            return new RedisQueue($this->redis, $config['queue'], 'default', 60);
        }
    }
}
namespace Laravel\Horizon\Events {
    class RedisEvent
    {
        public $connectionName;
        public $queue;
        public $payload;
        public function __construct($payload)
        {
            $this->payload = new \Laravel\Horizon\JobPayload($payload);
        }
        public function connection($connectionName)
        {
            $this->connectionName = $connectionName;
            return $this;
        }
        public function queue($queue)
        {
            $this->queue = $queue;
            return $this;
        }
    }
    class JobReserved extends RedisEvent {}
    class JobReleased extends RedisEvent {}
    class JobDeleted extends RedisEvent
    {
        public function __construct(public $job, $payload)
        {
            parent::__construct($payload);
        }
    }
    class JobFailed extends RedisEvent
    {
        public function __construct(public $exception, public $job, $payload)
        {
            parent::__construct($payload);
        }
    }
}
namespace App {
    final class HorizonProvider extends \Illuminate\Support\ServiceProvider
    {
        public function boot(): void
        {
            $this->app->afterResolving('queue', function ($manager): void {
                $manager->addConnector('redis', function () {
                    return new \Laravel\Horizon\Connector($this->app['redis']);
                });
            });
            foreach (['JobReserved', 'JobReleased', 'JobDeleted', 'JobFailed'] as $name) {
                $note = static function ($event) use ($name): void {
                    $try = $event->payload->decoded['attempts'];
                    $of = "$event->connectionName/$event->queue";
                    $why = $name === 'JobFailed' ? ': '.$event->exception->getMessage() : '';
                    $job = unserialize($event->payload->decoded['data']['command'])->do;
                    Notes::note("Horizon: $job $try of $of $name$why");
                    if ($job === 'well') {
                        throw new \RuntimeException('thrown by Horizon');
                    }
                };
                $this->app['events']->listen("Laravel\\Horizon\\Events\\$name", $note);
            }
        }
    }
}
"#;

#[test]
fn horizon_is_notified_when_jobs_begin_and_end() {
    for libraries in [debian(), framework("laravel10")] {
        let redis = Redis::start();
        let mut laravel = Laravel::on_redis(&libraries, redis.port);
        laravel.site = laravel
            .site
            .write("app/horizon.php", HORIZON)
            .replace(
                "bootstrap/app.php",
                "return $app;",
                "require __DIR__.'/../app/horizon.php';\n\
                 $app->register(App\\HorizonProvider::class);\nreturn $app;",
            )
            .replace("app/Work.php", "private string $do", "public string $do");
        laravel.push(&["well", "throw", "fail"]);
        let work = laravel.start(&["--workers", "1"]);
        work.wait_until(|| redis.is_empty(MAILS));
        let notes = laravel.notes();
        let heard = |job: &str| -> Vec<String> {
            let start = format!("Horizon: {job} ");
            let heard = notes.iter().filter_map(|note| note.strip_prefix(&start));
            heard
                .map(|note| note.replace(" of redis/mails", ""))
                .collect()
        };
        // The exception of a listener changes nothing.
        assert_eq!(heard("well"), ["1 JobReserved", "1 JobDeleted"]);
        assert_eq!(
            heard("throw"),
            [
                "1 JobReserved",
                "1 JobReleased",
                "2 JobReserved",
                "2 JobDeleted",
                "2 JobFailed: thrown by the job"
            ]
        );
        assert_eq!(
            heard("fail"),
            [
                "1 JobReserved",
                "1 JobDeleted",
                "1 JobFailed: failed by the job"
            ]
        );
        assert_eq!(laravel.table.failed().len(), 2, "{}", work.log());
    }
}
