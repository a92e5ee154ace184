//! Runs Pebble, the ACME server for tests, and what it needs: a name server that knows every host,
//! and ports of validation that lead to the server under test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::common::certificates::Authority;
use crate::common::ports::free_port;

/// A running Pebble.
pub struct Pebble {
    child: Child,
    /// The URL of its directory.
    pub url: String,
    management: u16,
    /// Its files, and the authority of its own certificate.
    dir: tempfile::TempDir,
    /// Where it validates by HTTP and TLS.
    pub http: Gate,
    pub tls: Gate,
}

/// What differs between tests.
pub struct Behaviour {
    /// How long certificates are valid.
    pub seconds: u64,
    /// Faults of Pebble's, as environment variables.
    pub env: &'static [(&'static str, &'static str)],
}

impl Default for Behaviour {
    fn default() -> Self {
        Behaviour {
            seconds: 90 * 86400,
            env: &[],
        }
    }
}

fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let target = PathBuf::from(env!("CARGO_BIN_EXE_surus"));
    let tools = target
        .ancestors()
        .skip(2)
        .map(|target| target.join("tools"));
    std::env::split_paths(&path)
        .chain(tools)
        .map(|directory| directory.join("pebble"))
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| panic!("pebble is missing; build it: make setup"))
}

impl Pebble {
    pub fn start(behaviour: &Behaviour) -> Pebble {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new("Pebble's own");
        authority.issue(&["127.0.0.1"]).write(dir.path(), "pebble");
        std::fs::write(dir.path().join("authority.pem"), &authority.pem).unwrap();
        let (http, tls, names) = (Gate::new(), Gate::new(), name_server());
        // Another process may take a port that was free.
        for _ in 0..10 {
            let [port, management] = free_ports();
            let config = serde_json::json!({"pebble": {
                "listenAddress": format!("127.0.0.1:{port}"),
                "managementListenAddress": format!("127.0.0.1:{management}"),
                "certificate": dir.path().join("pebble.crt"),
                "privateKey": dir.path().join("pebble.key"),
                "httpPort": http.port,
                "tlsPort": tls.port,
                "retryAfter": {"authz": 1, "order": 1},
                "keyAlgorithm": "ecdsa",
                "domainBlocklist": ["blocked.example"],
                "profiles": {
                    "default": {"description": "test", "validityPeriod": behaviour.seconds},
                },
            }});
            let file = dir.path().join("pebble.json");
            std::fs::write(&file, config.to_string()).unwrap();
            let mut child = Command::new(program())
                .arg("-config")
                .arg(&file)
                .args(["-dnsserver", &format!("127.0.0.1:{names}")])
                .env("PEBBLE_VA_NOSLEEP", "1")
                .env("PEBBLE_WFE_NONCEREJECT", "0")
                .envs(behaviour.env.iter().copied())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let output = child.stdout.take().unwrap();
            thread::spawn(move || BufReader::new(output).lines().for_each(drop));
            if listens(&mut child, port) && listens(&mut child, management) {
                return Pebble {
                    child,
                    url: format!("https://127.0.0.1:{port}/dir"),
                    management,
                    dir,
                    http,
                    tls,
                };
            }
        }
        panic!("pebble does not start");
    }

    /// The roots of its own certificate.
    pub fn authority_ca(&self) -> String {
        let path = self.dir.path().join("authority.pem");
        path.to_str().unwrap().to_owned()
    }

    /// What its management answers.
    pub fn manage(&self, path: &str, body: Option<&str>) -> String {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--max-time", "60"]);
        curl.args(["--cacert", &self.authority_ca()]);
        if let Some(body) = body {
            curl.args(["--data", body]);
        }
        curl.arg(format!("https://127.0.0.1:{}{path}", self.management));
        let output = curl.output().unwrap();
        assert!(output.status.success(), "{path}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The root of the certificates that it issues.
    pub fn roots(&self) -> Arc<RootCertStore> {
        let pem = self.manage("/roots/0", None);
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
            .unwrap();
        Arc::new(roots)
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_ports() -> [u16; 2] {
    [(); 2].map(|()| free_port())
}

fn listens(child: &mut Child, port: u16) -> bool {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(60) {
        if !matches!(child.try_wait(), Ok(None)) {
            return false;
        }
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

/// A port whose connections wait until the test opens it, and then lead to an address.
pub struct Gate {
    pub port: u16,
    target: Arc<(Mutex<Option<String>>, Condvar)>,
}

impl Gate {
    fn new() -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = Arc::new((Mutex::new(None), Condvar::new()));
        let shared = target.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared: Arc<(Mutex<Option<String>>, Condvar)> = shared.clone();
                thread::spawn(move || {
                    let (target, opened) = &*shared;
                    let target = opened.wait_while(target.lock().unwrap(), |to| to.is_none());
                    let address = target.unwrap().clone().unwrap();
                    if let Ok(server) = TcpStream::connect(address) {
                        join(client, server);
                    }
                });
            }
        });
        Gate { port, target }
    }

    /// Leads all connections to this address. One that no server listens on fails them.
    pub fn open(&self, address: &str) {
        *self.target.0.lock().unwrap() = Some(address.to_owned());
        self.target.1.notify_all();
    }
}

/// Copies between two connections until both have ended.
fn join(one: TcpStream, other: TcpStream) {
    let copy = |mut from: TcpStream, mut to: TcpStream| {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    };
    let (from, to) = (one.try_clone().unwrap(), other.try_clone().unwrap());
    let back = thread::spawn(move || copy(other, one));
    copy(from, to);
    let _ = back.join();
}

/// Answers DNS over TCP: every host is at 127.0.0.1. Returns its port.
fn name_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            thread::spawn(move || while answer(&mut client).is_ok() {});
        }
    });
    port
}

/// Answers one question (RFC 1035, 4).
fn answer(client: &mut TcpStream) -> std::io::Result<()> {
    let mut len = [0; 2];
    client.read_exact(&mut len)?;
    let mut asked = vec![0; usize::from(u16::from_be_bytes(len))];
    client.read_exact(&mut asked)?;
    let name = asked[12..].iter().position(|byte| *byte == 0).unwrap();
    let question = &asked[12..12 + name + 5];
    let is_address = question[name + 1..name + 3] == [0, 1];
    let mut answer = asked[..2].to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, is_address.into(), 0, 0, 0, 0]);
    answer.extend(question);
    if is_address {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
    }
    client.write_all(&u16::try_from(answer.len()).unwrap().to_be_bytes())?;
    client.write_all(&answer)
}
