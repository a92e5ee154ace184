//! Tests what `surus bench app` leaves alone: logs, queues, collectors and addresses of the
//! application's own server.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use crate::bench_app::app;
use crate::{project, says};

const HELLO: (&str, &str) = ("index.php", "<?php echo 'hello';");

#[test]
fn https_server_of_the_application_is_left_alone() {
    // The port and the certificate of the server in production.
    let https = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = https.local_addr().unwrap();
    let settings = format!(
        "[http]\nredirect_to_https = true\n[tls]\nlisten = '{address}'\n\
         certificate = '/nowhere/cert.pem'\nkey = '/nowhere/key.pem'\nhsts = 'max-age=9'\n"
    );
    let project = project(&[
        ("index.php", "<?php echo 'hello';"),
        ("surus.toml", &settings),
    ]);
    let listen = address.to_string();
    let env = [("SURUS_TLS_LISTEN", &*listen)];
    let said = app(project.path(), &["--engines", "cgi"], &env);
    assert_eq!(said.status, 0, "{}", said.stderr);
    // PHP's answer, and no redirection by Surus.
    says(&said.stderr, &["classic  GET /: 200, 5 B"]);
}

#[test]
fn automatic_https_of_the_application_is_left_alone() {
    let certificates = tempfile::tempdir().unwrap();
    let settings = format!(
        "[acme]\ndomains = ['a.example']\nauthorities = ['https://127.0.0.1:1/directory']\n\
         directory = '{}'\n",
        certificates.path().display()
    );
    let project = project(&[
        ("index.php", "<?php echo 'hello';"),
        ("surus.toml", &settings),
    ]);
    let env = [("SURUS_ACME_EMAIL", "root@a.example")];
    let said = app(project.path(), &["--engines", "cgi"], &env);
    assert_eq!(said.status, 0, "{}", said.stderr);
    says(&said.stderr, &["classic  GET /: 200, 5 B"]);
    // Neither an account nor a failure, which would delay the next order of production.
    let written = std::fs::read_dir(certificates.path()).unwrap().count();
    assert_eq!(written, 0, "{}", said.stderr);
}

#[test]
fn http3_of_the_application_is_left_alone() {
    let settings = "[http]\nh3 = true\n[tls]\nlisten = '127.0.0.1:0'\n\
                    certificate = '/nowhere/cert.pem'\nkey = '/nowhere/key.pem'\n";
    let project = project(&[HELLO, ("surus.toml", settings)]);
    let said = app(project.path(), &["--engines", "cgi"], &[]);
    assert_eq!(said.status, 0, "{}", said.stderr);
}

#[test]
fn logs_of_the_application_are_not_written() {
    let settings = "[log]\nfile = 'error.log'\n[access_log]\nfile = 'access.log'\n";
    let env = [
        ("SURUS_LOG_FILE", "error.log"),
        ("SURUS_ACCESS_LOG_FILE", "access.log"),
        ("SURUS_access_log_format", "json"),
    ];
    for (settings, env) in [(settings, &[][..]), ("", &env)] {
        let project = project(&[HELLO, ("surus.toml", settings)]);
        let said = app(project.path(), &["--engines", "cgi"], env);
        assert_eq!(said.status, 0, "{}", said.stderr);
        for log in ["error.log", "access.log"] {
            assert!(!project.path().join(log).exists(), "{log}: {settings}");
        }
    }
}

#[test]
fn reason_of_a_failed_engine_is_shown_although_a_file_takes_the_log() {
    let settings = "[log]\nfile = 'error.log'\n";
    let index = "<?php no_such_function();";
    let project = project(&[("index.php", index), ("surus.toml", settings)]);
    let said = app(project.path(), &[], &[]);
    assert_eq!(said.status, 1);
    says(&said.stderr, &["undefined function no_such_function()"]);
}

#[test]
fn queues_and_schedules_of_the_application_do_not_run() {
    let directory = tempfile::tempdir().unwrap();
    let mode = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(directory.path(), mode).unwrap();
    let ran = directory.path().join("ran");
    let settings = format!(
        "[work]\nserve = true\n[[schedule]]\nname = 'touch'\ncron = '* * * * * *'\n\
         command = ['touch', '{}']\n",
        ran.display()
    );
    for env in [&[][..], &[("SURUS_WORK_SERVE", "true")]] {
        let project = project(&[HELLO, ("surus.toml", &settings)]);
        // Each server lives for more than a second.
        let args = ["--engines", "classic", "-d", "1500ms"];
        let said = app(project.path(), &args, env);
        assert_eq!(said.status, 0, "{}", said.stderr);
        assert!(!ran.exists(), "{env:?}");
    }
}

#[test]
fn collector_of_the_application_gets_no_traces() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    collector.set_nonblocking(true).unwrap();
    let url = format!("http://{}", collector.local_addr().unwrap());
    let settings = format!("[telemetry]\nendpoint = '{url}'\nsampler = 'always_on'\n");
    for (settings, env) in [
        (&*settings, &[][..]),
        ("", &[("SURUS_TELEMETRY_ENDPOINT", &*url)]),
        ("", &[("OTEL_EXPORTER_OTLP_ENDPOINT", &*url)]),
    ] {
        let project = project(&[HELLO, ("surus.toml", settings)]);
        let said = app(project.path(), &["--engines", "classic"], env);
        assert_eq!(said.status, 0, "{}", said.stderr);
        let connected = collector.accept().map(|(_, client)| client);
        let error = connected.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{settings} {env:?}");
    }
}

#[test]
fn service_manager_is_told_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify.sock");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    manager.set_nonblocking(true).unwrap();
    let project = project(&[HELLO]);
    let env = [("NOTIFY_SOCKET", path.to_str().unwrap())];
    let said = app(project.path(), &["--engines", "classic"], &env);
    assert_eq!(said.status, 0, "{}", said.stderr);
    let error = manager.recv(&mut [0; 100]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}
