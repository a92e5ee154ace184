//! Symfony Messenger's messages without configuration: sent by Messenger, decided by Messenger.

#[cfg(feature = "amqp")]
mod amqp;
mod database;
mod redis;
mod sqs;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::json;

use super::database::{Client, Kind, PASSWORD, Server};
use super::site::{Site, extension, framework};
use super::work::{Work, notes};
use crate::common::php::cli;

const CONSOLE: &str = "<?php
require dirname(__DIR__).'/vendor/autoload.php';
$kernel = new App\\Kernel('prod', false);
(new Symfony\\Bundle\\FrameworkBundle\\Console\\Application($kernel))->run();
";

/// Sends the messages that its arguments name.
const SEND: &str = r"<?php
require __DIR__.'/vendor/autoload.php';
$kernel = new App\Kernel('prod', false);
$kernel->boot();
foreach (array_slice($argv, 1) as $what) {
    $stamps = [];
    if (str_starts_with($what, 'later ')) {
        $what = substr($what, 6);
        $stamps[] = new Symfony\Component\Messenger\Stamp\DelayStamp(1500);
    }
    $kernel->getContainer()->get('bus')->dispatch(new App\Order($what), $stamps);
}
";

const EXTENSIONS: [&str; 4] = ["amqp", "igbinary", "redis", "pdo_pgsql"];

/// An application with a transport, and its failure transport in a database.
pub struct Messenger {
    pub site: Site,
    pub client: Client,
    notes: PathBuf,
    env: Vec<(String, String)>,
    /// Ends with the last test that uses it.
    server: Option<Arc<Server>>,
}

impl Messenger {
    pub fn new(kind: Kind, version: &str, dsn: &str) -> Messenger {
        if kind == Kind::Sqlite {
            return Messenger::with(version, dsn, |site| {
                let file = site.tmp().join("app.sqlite");
                let client = Client::connect(kind, file.to_str().unwrap()).unwrap();
                let database = json!({ "driver": "pdo_sqlite", "path": file });
                (client, database.to_string())
            });
        }
        let server = Server::shared(kind);
        let mut messenger = Messenger::on(&server, version, dsn);
        messenger.server = Some(server);
        messenger
    }

    /// The same on a server that the test may kill.
    pub fn on(server: &Server, version: &str, dsn: &str) -> Messenger {
        let name = server.create();
        let client = Client::connect(server.kind, &server.url(&name)).unwrap();
        let driver = match server.kind {
            Kind::MySql => "pdo_mysql",
            _ => "pdo_pgsql",
        };
        let database = json!({
            "driver": driver,
            "host": "127.0.0.1",
            "port": server.port,
            "user": "surus",
            "password": PASSWORD.1,
            "dbname": name,
        });
        Messenger::with(version, dsn, |_| (client, database.to_string()))
    }

    fn with(
        version: &str,
        dsn: &str,
        database: impl FnOnce(&Site) -> (Client, String),
    ) -> Messenger {
        let composer = json!({
            "require": { "surus/surus": "@dev" },
            "autoload": { "psr-4": { "App\\": "src/" } },
            "extra": { "debian": [
                "Symfony/Bundle/FrameworkBundle",
                "Symfony/Component/Console",
                "Symfony/Component/Messenger",
                "Symfony/Component/Messenger/Bridge/AmazonSqs",
                "Symfony/Component/Messenger/Bridge/Amqp",
                "Symfony/Component/Messenger/Bridge/Doctrine",
                "Symfony/Component/Messenger/Bridge/Redis",
                "Doctrine/DBAL",
                "Doctrine/Persistence",
            ] },
        });
        let site = Site::new()
            .directory("public")
            .write("composer.json", &composer.to_string())
            .write("src/Kernel.php", include_str!("Kernel.php"))
            .write("src/Order.php", "<?php class_exists(App\\Kernel::class);")
            .write("src/HourlyLimiter.php", include_str!("HourlyLimiter.php"))
            .write("src/Handler.php", "<?php class_exists(App\\Kernel::class);")
            .write(
                "src/Registry.php",
                "<?php class_exists(App\\Kernel::class);",
            )
            .write("bin/console", CONSOLE)
            .write("send.php", SEND)
            .vendor_from(&framework(version));
        extension("redis", "php-redis");
        let (client, database) = database(&site);
        let notes = site.tmp().join("notes");
        let path = |path: &Path| path.to_str().unwrap().to_string();
        let env = [
            ("NOTES", path(&notes)),
            ("DATABASE", database),
            ("MESSENGER_TRANSPORT_DSN", dsn.into()),
            ("APP_ENV", "prod".into()),
            // Messenger writes times of this zone, until version 6.
            ("ZONE", "Asia/Tokyo".into()),
            ("APP_CACHE_DIR", path(&site.tmp().join("cache"))),
        ];
        let env = env.map(|(name, value)| (name.to_string(), value)).into();
        Messenger {
            site,
            client,
            notes,
            env,
            server: None,
        }
    }

    #[track_caller]
    pub fn start(&self, args: &[&str], more: &[(&str, &str)]) -> Work {
        let work = self.spawn(args, more);
        work.wait_for_log(|log| log.contains("working on queue"));
        work
    }

    fn spawn(&self, args: &[&str], more: &[(&str, &str)]) -> Work {
        let set = |(name, value): &(String, String)| (format!("SURUS_ENV_{name}"), value.clone());
        let mut env: Vec<_> = self.env.iter().map(set).collect();
        env.push(("SURUS_PHP_EXTENSION".into(), EXTENSIONS.join(", ")));
        let own = env.iter().map(|(name, value)| (&**name, &**value));
        let env: Vec<(&str, &str)> = own.chain(more.iter().copied()).collect();
        Work::spawn(&self.site, args, &env)
    }

    pub fn send(&self, messages: &[&str]) {
        self.run("send.php", messages);
    }

    pub fn console(&self, args: &[&str]) -> String {
        self.run("bin/console", args)
    }

    fn run(&self, script: &str, args: &[&str]) -> String {
        self.run_with(&self.env, script, args)
    }

    fn run_with(&self, env: &[(String, String)], script: &str, args: &[&str]) -> String {
        let extensions = EXTENSIONS.map(|name| format!("extension={name}"));
        let output = Command::new(cli())
            .args(extensions.iter().flat_map(|it| ["-d", it]))
            .arg(self.site.www().join(script))
            .args(args)
            .envs(env.iter().cloned())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{all}");
        // Created by root, where tests run as root.
        self.site.stored();
        all
    }

    pub fn notes(&self) -> Vec<String> {
        notes(&self.notes)
    }

    pub fn count(&self, note: &str) -> usize {
        let notes = self.notes();
        notes.iter().filter(|it| it.starts_with(note)).count()
    }

    /// Lets the messages go on that wait.
    pub fn go(&self) {
        std::fs::write(self.notes.with_extension("go"), "").unwrap();
    }

    /// Connects again, after the server has been killed.
    fn reconnect(&mut self, server: &Server) {
        let (_, database) = self
            .env
            .iter()
            .find(|(name, _)| name == "DATABASE")
            .unwrap();
        let database: serde_json::Value = serde_json::from_str(database).unwrap();
        let url = server.url(database["dbname"].as_str().unwrap());
        self.client = Client::connect(server.kind, &url).unwrap();
    }

    /// Writes surus.toml.
    pub fn configure(&self, config: &str) {
        std::fs::write(self.site.www().join("surus.toml"), config).unwrap();
    }

    /// Retries each message until it is handled, also one that loses its worker each time.
    fn retry_always(&self) {
        let kernel = self.site.www().join("src/Kernel.php");
        let text = std::fs::read_to_string(&kernel).unwrap();
        assert!(text.contains("'max_retries' => 1,"), "{text}");
        let text = text.replace("'max_retries' => 1,", "'max_retries' => 1000,");
        std::fs::write(kernel, text).unwrap();
        self.configure("[work]\nmax_losses = 100\n");
    }

    /// Sends messages, and returns what each of them notes when it is handled.
    fn send_many(&self, count: usize) -> Vec<String> {
        let names: Vec<_> = (0..count).map(|number| format!("m{number}")).collect();
        let sent: Vec<_> = names.iter().map(String::as_str).collect();
        self.send(&sent);
        names.iter().map(|name| format!("{name} is done")).collect()
    }

    pub fn configure_timeout(&self, timeout: &str) {
        self.configure(&format!(
            "[[queue]]\nname = 'async'\ntimeout = '{timeout}'\n"
        ));
    }

    /// How many messages a queue of the table has.
    pub fn rows(&self, queue: &str) -> usize {
        let sql = format!("select id from messenger_messages where queue_name = '{queue}'");
        self.client.rows(&sql).len()
    }
}
