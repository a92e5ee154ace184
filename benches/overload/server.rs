//! A `surus serve` with one script, and the CPU time of all of its processes.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub struct Server {
    child: Child,
    /// It listens at several: each leaves clients 28,000 ports of their own.
    pub addresses: Vec<SocketAddr>,
    _site: tempfile::TempDir,
}

impl Server {
    pub fn start(program: &Path, engine: &str, script: &str) -> Server {
        let site = tempfile::tempdir().unwrap();
        std::fs::write(site.path().join("index.php"), script).unwrap();
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(site.path(), permissions).unwrap();
        let address = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let addresses: Vec<SocketAddr> = (1..=8)
            .map(|host| SocketAddr::from(([127, 0, 0, host], address.port())))
            .collect();
        let listen = addresses
            .iter()
            .flat_map(|address| ["--listen".to_string(), address.to_string()]);
        let child = Command::new(program)
            .arg("serve")
            .arg(site.path())
            .args(listen)
            .args(["--engine", engine])
            .env(
                "SURUS_ADMIN_LISTEN",
                format!("unix:{}/admin", site.path().display()),
            )
            .stdout(Stdio::null())
            .stderr(match std::env::var_os("OVERLOAD_LOG") {
                Some(_) => Stdio::inherit(),
                None => Stdio::null(),
            })
            .spawn()
            .unwrap();
        while TcpStream::connect(address).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
        Server {
            child,
            addresses,
            _site: site,
        }
    }

    pub fn cpu(&self) -> Duration {
        cpu_of(self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        let _ = self.child.wait();
    }
}

/// User and system time of a process and its descendants (proc_pid_stat(5)), of which those count
/// that have ended.
fn cpu_of(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .collect();
    let ticks: u64 = fields
        .iter()
        .skip(11)
        .take(4)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let own = Duration::from_millis(ticks * 10);
    own + children
        .split_whitespace()
        .filter_map(|child| child.parse().ok())
        .map(cpu_of)
        .sum::<Duration>()
}
