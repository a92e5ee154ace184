//! The end of a server and of the network: nothing is lost, and no job runs twice.

use super::super::plain::Plain;
use super::super::proxy::Proxy;
use super::super::table::Table;
use super::super::work::Work;
use super::{Kind, Server, in_each_server, url};

in_each_server! {
    killed_server_is_waited_for_and_the_running_job_settled_later
    cut_network_is_waited_for
    server_that_cannot_be_used_stops_the_start_with_the_remedy
    job_with_more_attempts_than_its_column_holds_blocks_no_other
}

#[test]
fn surus_listens_for_notifications_also_after_its_connection_has_ended() {
    let plain = Plain::new(Kind::Postgres, "");
    let work = plain.start(&["--workers", "1"]);
    let name = &plain.table.name;
    let listening = format!(
        r#"select pid from pg_stat_activity where datname = '{name}' and query = 'listen "surus"'"#
    );
    let listens = || {
        plain
            .table
            .ask(&listening)
            .first()
            .map(|row| row[0].clone())
    };
    work.wait_until(|| listens().is_some());
    let first = listens();
    let pid = first.as_ref().unwrap();
    plain
        .table
        .run(&format!("select pg_terminate_backend({pid})"));
    work.wait_until(|| listens().is_some_and(|pid| Some(pid) != first));
}

fn killed_server_is_waited_for_and_the_running_job_settled_later(kind: Kind) {
    let mut server = Server::start(kind);
    // The server may be killed after it has reserved job 1 and before it has said so.
    let mut plain = Plain::with("lease = '30s'\n", |_| Table::on(&server));
    let work = plain.start(&["--workers", "1"]);
    plain.push(0, "wait");
    work.wait_until(|| plain.count("begins 0") == 1);
    plain.push(1, "");
    server.kill();
    plain.go(true);
    work.wait_for_log(|log| log.contains("cannot settle a job"));
    server.revive();
    plain.table.connect_again();
    plain.push(2, "");
    work.wait_until(|| plain.table.is_empty());
    for number in 0..3 {
        assert_eq!(plain.count(&format!("begins {number}")), 1);
        assert_eq!(plain.count(&format!("done {number}")), 1);
    }
}

fn cut_network_is_waited_for(kind: Kind) {
    let server = Server::shared(kind);
    let proxy = Proxy::to(server.port);
    let plain = Plain::with("", |_| {
        let mut table = Table::on(&server);
        table.source = url(kind, proxy.port, &table.name);
        table
    });
    let work = plain.start(&["--workers", "1"]);
    for round in 0..3 {
        let (first, second) = (10 * round, 10 * round + 1);
        plain.push(first, "wait");
        work.wait_until(|| plain.count(&format!("begins {first}")) == 1);
        proxy.cut();
        // It arrives while Surus cannot see it.
        plain.push(second, "");
        plain.go(true);
        work.wait_until(|| plain.count(&format!("done {first}")) == 1);
        proxy.mend();
        work.wait_until(|| plain.table.is_empty());
        plain.go(false);
        for number in [first, second] {
            assert_eq!(plain.count(&format!("begins {number}")), 1);
        }
    }
}

fn server_that_cannot_be_used_stops_the_start_with_the_remedy(kind: Kind) {
    let server = Server::shared(kind);
    let right = server.url(&server.create());
    for (source, error) in [
        (
            right.replace("surus:", "surus:hidden"),
            "check that it runs, and its address and password",
        ),
        (url(kind, 1, "hidden"), "cannot use the database"),
        (
            right.replace(&server.port.to_string(), "x"),
            "queue.source is not the URL",
        ),
        (right.clone(), "has no table jobs; create it"),
    ] {
        let plain = Plain::from(&source, "");
        let mut work = Work::spawn(&plain.site, &["--workers", "1"], &[]);
        assert_eq!(work.wait().code(), Some(1), "{source}");
        work.wait_for_log(|log| log.contains(error));
        let log = work.log();
        assert!(!log.contains("p@ss") && !log.contains("p%40ss"), "{log}");
    }
}

fn job_with_more_attempts_than_its_column_holds_blocks_no_other(kind: Kind) {
    let plain = Plain::new(kind, "tries = 0\n");
    plain.push(0, "");
    let most = if kind == Kind::MySql { 255 } else { 32767 };
    plain
        .table
        .run(&format!("update jobs set attempts = {most}"));
    plain.push(1, "");
    let work = plain.start(&["--workers", "1"]);
    work.wait_until(|| plain.table.is_empty());
    assert_eq!((plain.count("done 0"), plain.count("done 1")), (1, 1));
}
