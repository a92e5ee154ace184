//! Tests what clients and operators meet while running jobs finish at a shutdown.

use std::io::ErrorKind;
use std::net::TcpStream;

use super::super::database::Kind;
use super::super::plain::Plain;
use super::{By, SERVE, admin, asked, by_each, serve, surus, until};

#[test]
fn stopped_server_makes_commands_fail_in_time() {
    let plain = Plain::new(Kind::Sqlite, SERVE);
    let server = serve(&plain, By::User);
    server.signal("STOP");
    for command in [&["status"][..], &["reload"], &["work", "status"]] {
        let output = surus(&plain, &server, command);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && error.contains("has not answered for 10 seconds"),
            "{command:?}: {error}"
        );
    }
    server.signal("CONT");
    until(&server, || {
        surus(&plain, &server, &["status"]).status.success()
    });
}

fn is_refused(address: &str) -> bool {
    let connected = TcpStream::connect(address);
    connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[test]
fn new_connections_are_refused_while_running_jobs_finish() {
    by_each(|by| {
        let plain = Plain::new(Kind::Sqlite, SERVE);
        let mut server = serve(&plain, by);
        let [sites, queues] = admin(&server);
        plain.push(0, "wait");
        until(&server, || plain.count("begins 0") == 1);
        server.signal("TERM");
        until(&server, || is_refused(&server.address));
        if by == By::Root {
            // The front end has exited. The process of the queues still answers operators.
            until(&server, || is_refused(&sites));
            let status = surus(&plain, &server, &["status"]);
            let text = String::from_utf8_lossy(&status.stdout);
            assert!(text.contains("work: PHP"), "{text}");
        }
        let (status, why) = asked(&queues, "/-/ready");
        assert!(status == 503 && why.contains("draining"), "{status} {why}");
        plain.go(true);
        assert!(server.wait().success(), "{by:?}: {}", server.log());
        assert_eq!(plain.count("done 0"), 1, "{by:?}: {}", server.log());
    });
}
