//! Tests that Surus serves on sockets that a service manager passes, as systemd does.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use surus_sys::process::{Orphan, child};

use crate::common::Surus;
use crate::common::certificates::Authority;
use crate::http3::client::Client;
use crate::tls::Secure;
use crate::wire::{Wire, site};

const GET: &str = "GET /index.php HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// The sockets of a unit, which stay when the service ends.
#[derive(Default)]
struct Unit {
    sockets: Vec<(OwnedFd, &'static str)>,
}

impl Unit {
    fn add(&mut self, socket: impl Into<OwnedFd>, name: &'static str) {
        self.sockets.push((socket.into(), name));
    }

    fn tcp(&mut self, name: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        self.add(listener, name);
        address
    }

    /// Starts Surus with the sockets. The shell knows the number of the process before it is Surus.
    fn try_start(&self, dir: &Path, env: &[(&str, &str)]) -> Result<Surus, String> {
        let mut command = Command::new("sh");
        command.args(["-c", "export LISTEN_PID=${PID:-$$}; exec \"$0\" \"$@\""]);
        command.arg(env!("CARGO_BIN_EXE_surus"));
        let names: Vec<_> = self.sockets.iter().map(|(_, name)| *name).collect();
        command.env("LISTEN_FDS", names.len().to_string());
        command.env("LISTEN_FDNAMES", names.join(":"));
        let sockets = self.sockets.iter().map(|(fd, _)| fd.try_clone().unwrap());
        let sockets = sockets.zip(3..).collect();
        child(&mut command, None, Orphan::Killed, sockets).unwrap();
        let env = [&[("SURUS_ENGINE_WORKERS", "1")], env].concat();
        Surus::spawn_by(command, dir, &[], &env)
    }

    fn start(&self, dir: &Path, env: &[(&str, &str)]) -> Surus {
        self.try_start(dir, env)
            .unwrap_or_else(|log| panic!("{log}"))
    }
}

fn status(at: SocketAddr) -> u16 {
    Wire::to(&at.to_string()).ask(GET).unwrap().status
}

fn reload(dir: &Path) {
    let reload = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("reload")
        .arg(dir)
        .status();
    assert!(reload.unwrap().success());
}

#[test]
fn inherited_sockets_are_served_across_reloads_and_restarts() {
    let (dir, mut unit) = (site(), Unit::default());
    let at = unit.tcp("http");
    let path = dir.path().join("inherited.sock");
    unit.add(UnixListener::bind(&path).unwrap(), "http");
    // It waits until Surus serves.
    let mut early = Wire::to(&at.to_string());
    early.send(GET);
    let mut surus = unit.start(dir.path(), &[]);
    assert_eq!(early.answer().unwrap().status, 200);
    assert_eq!(surus.address, at.to_string());
    let log = surus.log();
    assert!(
        log.contains("sockets of the service manager are used"),
        "{log}"
    );
    assert!(
        log.contains(&format!("listening on unix:{}", path.display())),
        "{log}"
    );
    let by_unix = || {
        use std::io::{Read, Write};
        let mut client = UnixStream::connect(&path).unwrap();
        client
            .write_all(b"GET /static.txt HTTP/1.0\r\n\r\n")
            .unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        said
    };
    assert!(by_unix().ends_with("static"), "{}", surus.log());
    let mut kept = Wire::to(&at.to_string());
    assert_eq!(kept.ask(GET).unwrap().status, 200);
    reload(dir.path());
    assert_eq!(kept.ask(GET).unwrap().status, 200);
    assert_eq!(status(at), 200);
    // The keeper's next front end has them, too.
    let front = surus.front();
    if front != surus.pid() {
        let killed = Command::new("kill")
            .args(["-KILL", &front.to_string()])
            .status();
        assert!(killed.unwrap().success());
        surus.wait_for_log(|log| log.contains("the front end exited; starting another"));
        assert_eq!(status(at), 200);
        assert!(by_unix().ends_with("static"));
    }
    // Between two processes, clients wait.
    surus.signal("TERM");
    assert!(surus.wait().success(), "{}", surus.log());
    assert!(path.exists());
    let mut between = Wire::to(&at.to_string());
    between.send(GET);
    let surus = unit.start(dir.path(), &[]);
    assert_eq!(between.answer().unwrap().status, 200);
    assert!(by_unix().ends_with("static"), "{}", surus.log());
}

#[tokio::test]
async fn inherited_sockets_for_tls_and_http_3_are_told_by_name_and_port() {
    let (dir, mut unit) = (site(), Unit::default());
    let plain = unit.tcp("surus.socket");
    let named = unit.tcp("https");
    let by_port = unit.tcp("surus.socket");
    for address in [named, by_port] {
        unit.add(UdpSocket::bind(address).unwrap(), "");
    }
    let authority = Authority::new("Test");
    authority.issue(&["localhost"]).write(dir.path(), "server");
    let listen = by_port.to_string();
    let env = [
        ("SURUS_TLS_LISTEN", &*listen),
        ("SURUS_TLS_CERTIFICATE", "server.crt"),
        ("SURUS_TLS_KEY", "server.key"),
        ("SURUS_HTTP_H3", "true"),
    ];
    let surus = unit.start(dir.path(), &env);
    assert_eq!(status(plain), 200);
    let mut secure = Secure {
        surus,
        address: String::new(),
        authority,
    };
    for address in [named, by_port] {
        secure.address = address.to_string();
        assert_eq!(secure.connect().ask(GET).unwrap().seen("HTTPS"), "on");
        let mut client = Client::connect(&secure).await;
        let answer = client.get("/index.php").await;
        assert_eq!(answer.seen("SERVER_PROTOCOL"), "HTTP/3.0");
    }
}

#[test]
fn sockets_of_another_process_are_ignored() {
    let (dir, mut unit) = (site(), Unit::default());
    let at = unit.tcp("http");
    let surus = unit.start(dir.path(), &[("PID", "1")]);
    assert_ne!(surus.address, at.to_string());
    assert_eq!(status(surus.address.parse().unwrap()), 200);
}

#[test]
fn socket_that_cannot_be_served_stops_the_start_with_a_remedy() {
    let dir = site();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (socket, says) in [
        (OwnedFd::from(connection), "Accept=no"),
        (file.into(), "descriptor 3 (LISTEN_FDS) is not a socket"),
        (udp.into(), "set http.h3 = true"),
    ] {
        let mut unit = Unit::default();
        unit.add(socket, "http");
        let log = unit.try_start(dir.path(), &[]).err().unwrap();
        assert!(log.contains(says), "{says}: {log}");
    }
}
