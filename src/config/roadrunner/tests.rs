//! Tests of the settings that `.rr.yaml` becomes.

use super::*;

fn read(text: &str) -> Settings {
    let variable = |name: &str| (name == "PORT").then(|| "8081".to_string());
    parse(text, &variable).unwrap()
}

#[test]
fn counterparts_are_set_and_the_rest_is_listed() {
    let settings = read(
        r#"
version: "3"
rpc:
  listen: tcp://127.0.0.1:6001
server:
  command: "php -d memory_limit=256M public/worker.php --mode http"
  relay: pipes
  env:
    APP_ENV: ${APP_ENV:-prod}
http:
  address: :${PORT}
  max_request_size: 256
  raw_body: true
  uploads:
    dir: "/tmp"
    forbid: [ ".php", ".sh" ]
    allow: []
  middleware: [ "static", "gzip", "headers" ]
  static:
    dir: "public"
    forbid: [ ".php" ]
  pool:
    num_workers: 4
    max_jobs: 500
    allocate_timeout: 60s
    supervisor:
      exec_ttl: 1m30s
      max_worker_memory: 128
      idle_ttl: 10s
"#,
    );
    let expected: Table = toml::from_str(
        r#"
            [engine]
            clear_env = false
            script = "public/worker.php"
            script_args = ["--mode", "http"]
            roadrunner_raw_body = true
            roadrunner_uploads_forbid = [".php", ".sh"]
            roadrunner_uploads_allow = []
            workers = 4
            max_requests = 500
            max_memory = "128M"
            boot_timeout = "60000ms"
            [env]
            APP_ENV = "prod"
            [php]
            memory_limit = "256M"
            [http]
            listen = ["0.0.0.0:8081"]
            max_body_size = "256M"
            request_timeout = "90000ms"
            [compress]
            enabled = true
            [site]
            root = "public"
            "#,
    )
    .unwrap();
    assert_eq!(settings.table, expected);
    assert_eq!(
        settings.ignored,
        [
            "http.middleware: headers",
            "http.pool.supervisor.idle_ttl",
            "http.uploads.dir",
            "rpc"
        ]
    );
    // Every value is one that surus.toml may have.
    serde::Deserialize::deserialize(expected)
        .map(|_: crate::config::Config| ())
        .unwrap();
}

#[test]
fn consumed_pipelines_of_amqp_become_queues_and_others_are_listed() {
    let settings = read(
        r#"
server:
  command: "php worker.php"
amqp:
  addr: amqp://guest:guest@rabbit:${PORT}/
jobs:
  num_pollers: 10
  consume: [ "emails" ]
  pool:
    num_workers: 3
    max_jobs: 100
    supervisor:
      exec_ttl: 90s
  pipelines:
    emails:
      driver: amqp
      config:
        queue: mail
        prefetch: 10
        routing_key: mail
    reports:
      driver: amqp
    local:
      driver: memory
"#,
    );
    let expected: Table = toml::from_str(
        r#"
            [[queue]]
            format = "roadrunner"
            source = "amqp://guest:guest@rabbit:8081"
            name = "mail"
            pipeline = "emails"
            timeout = "90000ms"
            "#,
    )
    .unwrap();
    assert_eq!(settings.table["queue"], expected["queue"]);
    assert_eq!(settings.table["pool"]["work"]["workers"], Value::from(3));
    assert_eq!(
        settings.ignored,
        [
            "jobs.num_pollers",
            "jobs.pipelines.emails.config.routing_key",
            "jobs.pipelines.local (driver memory)",
            "jobs.pipelines.reports (not in jobs.consume)",
            "jobs.pool.max_jobs",
        ]
    );
    serde::Deserialize::deserialize(settings.table)
        .map(|_: crate::config::Config| ())
        .unwrap();
}

#[test]
fn each_pool_runs_its_own_command_or_that_of_the_server() {
    let server = "server:\n  command: php -d a=1 app.php --all\n";
    let http = "http:\n  pool:\n    command: /opt/php web.php\n";
    let jobs = "jobs:\n  pool:\n    command: php -d b=2 jobs.php --queue\n";
    let engine_of_server = "script = 'app.php'\nscript_args = ['--all']\n[php]\na = '1'\n";
    let engine_of_http = "script = 'web.php'\nscript_args = []\nphp_cli = '/opt/php'\n";
    let work_of_server =
        "[pool.work]\nscript = 'app.php'\nscript_args = ['--all']\nphp = { a = '1' }\n";
    let work_of_jobs =
        "[pool.work]\nscript = 'jobs.php'\nscript_args = ['--queue']\nphp = { b = '2' }\n";
    for (commands, engine, work) in [
        ([server, "", ""], engine_of_server, ""),
        // The order of the file does not matter.
        ([http, server, ""], engine_of_http, work_of_server),
        ([server, http, ""], engine_of_http, work_of_server),
        ([server, jobs, ""], engine_of_server, work_of_jobs),
        ([server, http, jobs], engine_of_http, work_of_jobs),
        (["", jobs, ""], "", work_of_jobs),
    ] {
        let mut found = read(&commands.concat()).table;
        found.remove("site");
        let expected = format!("[engine]\nclear_env = false\n{engine}{work}");
        let expected: Table = toml::from_str(&expected).unwrap();
        assert_eq!(found, expected, "{commands:?}");
    }
}

#[test]
fn what_a_command_of_jobs_shares_with_that_of_requests_is_listed() {
    let of_http = |command: &str| format!("http:\n  pool:\n    command: {command}\n");
    let of_jobs = |command: &str| format!("jobs:\n  pool:\n    command: {command}\n");
    let of_server = |command: &str| format!("server:\n  command: {command}\n");
    let other_php = of_jobs("/usr/bin/php jobs.php");
    for (commands, php, ignored) in [
        (
            of_http("/opt/php web.php") + &other_php,
            Some("/opt/php"),
            vec!["jobs.pool.command: /usr/bin/php"],
        ),
        // Requests have the php of PATH.
        (
            of_http("php web.php") + &other_php,
            None,
            vec!["jobs.pool.command: /usr/bin/php"],
        ),
        (
            of_http("/opt/php web.php") + &of_server("php app.php"),
            Some("/opt/php"),
            vec!["server.command: php"],
        ),
        (other_php, Some("/usr/bin/php"), vec![]),
        (
            of_server("php -d a=1 -d b=2 app.php") + &of_jobs("php -d b=3 jobs.php"),
            None,
            vec!["jobs.pool.command without -d a"],
        ),
    ] {
        let settings = read(&commands);
        let engine = &settings.table["engine"];
        let found = engine.get("php_cli").and_then(Value::as_str);
        assert_eq!(found, php, "{commands}");
        assert_eq!(settings.ignored, ignored, "{commands}");
    }
}

#[test]
fn unsupported_command_of_jobs_leaves_requests_alone_and_serves_no_queue() {
    let settings = read(
        "server:\n  command: php app.php\njobs:\n  consume: [a]\n  pool:\n    \
         command: ./worker\n  pipelines:\n    a:\n      driver: amqp\n",
    );
    assert_eq!(settings.table["engine"]["script"], Value::from("app.php"));
    assert_eq!(settings.table.get("queue"), None);
    let why = "jobs.pool.command: `./worker` is not supported; Surus starts `php SCRIPT` only \
               (so no pipeline is served)";
    assert_eq!(settings.ignored, [why]);
}

#[test]
fn time_limits_that_no_file_sets_are_listed() {
    let merged = |text: &str, own: &str| {
        let mut settings = read(text);
        settings.merge_into(&mut toml::from_str(own).unwrap());
        settings.own_limits
    };
    let limits_with = |own: &str, http: &str, jobs: &str| {
        let jobs = format!(
            "jobs:\n  consume: [a]\n  pool:\n    supervisor: {{{jobs}}}\n  pipelines:\n    \
             a:\n      driver: amqp\n"
        );
        let text = format!("http:\n  pool:\n    supervisor: {{{http}}}\n{jobs}");
        merged(&text, own)
    };
    let limits = |http: &str, jobs: &str| limits_with("", http, jobs);
    let both = ["http.request_timeout", "queue.timeout"];
    assert_eq!(limits("", ""), both);
    assert_eq!(limits("exec_ttl: 0s", "exec_ttl: 0s"), both, "no limit");
    assert_eq!(limits("exec_ttl: 90s", ""), both[1..]);
    assert_eq!(limits("", "exec_ttl: 90s"), both[..1]);
    let own = "http.request_timeout = \"10m\"";
    assert_eq!(limits_with(own, "", ""), both[1..]);
    let own = "[[queue]]\nname = \"other\"";
    assert_eq!(limits_with(own, "", ""), both[..1]);
    assert!(merged("server:\n  command: php app.php\n", "").is_empty());
}

#[test]
fn files_are_sent_only_by_their_middleware() {
    let files = |text| read(text).table.get("site").cloned();
    let hidden = files("server:\n  command: php app.php\n").unwrap();
    assert_eq!(hidden["files"], Value::from(false));
    let switched_off = files("http:\n  middleware: [static]").unwrap();
    assert_eq!(switched_off["files"], Value::from(false));
    let limited =
        "http:\n  middleware: [static]\n  static:\n    dir: public\n    forbid: [.json]\n";
    assert_eq!(files(limited).unwrap()["files"], Value::from(false));
    let sent = files("http:\n  middleware: [static]\n  static:\n    dir: public\n").unwrap();
    assert_eq!(sent.get("files"), None);
}

#[test]
fn proxies_are_trusted_only_by_their_middleware() {
    let trusted = |text: &str| {
        let text = format!("http:\n  trusted_subnets: [10.0.0.0/8]\n  middleware: [{text}]\n");
        read(&text).table.get("http").is_some()
    };
    assert!(!trusted("gzip"));
    assert!(trusted("proxy_ip_parser"));
}

#[test]
fn unsupported_command_is_rejected_with_its_place() {
    for (command, error) in [
        ("node worker.js", "server.command: `node` is not supported"),
        ("php -r 'x();'", "server.command: the option `-r`"),
        ("php", "server.command: the command names no script"),
    ] {
        let text = format!("server:\n  command: {command}\n");
        let found = format!("{:#}", parse(&text, &|_| None).unwrap_err());
        assert!(found.contains(error), "{found}");
    }
}

#[test]
fn explicit_settings_take_precedence() {
    let mut table: Table = toml::from_str("[engine]\nworkers = 2").unwrap();
    let defaults = read("server:\n  command: [php, app.php]\nhttp: {pool: {num_workers: 9}}");
    apply(&mut table, defaults.table);
    assert_eq!(table["engine"]["workers"], Value::from(2));
    assert_eq!(table["engine"]["script"], Value::from("app.php"));
}

#[test]
fn durations_of_go_are_read() {
    for (text, ms) in [
        ("", 0),
        ("0s", 0),
        ("60s", 60_000),
        ("1h1m", 3_660_000),
        ("1.5s", 1500),
    ] {
        assert_eq!(milliseconds(text), Some(ms), "{text}");
    }
    for text in ["s", "1", "1x", "-1s"] {
        assert_eq!(milliseconds(text), None, "{text}");
    }
}
