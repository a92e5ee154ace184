//! Tests log messages of any length, from every engine.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use surus::engines::{CATALOGUE, EngineEntry};

use super::memory::{MIB, Sampler, resident, settles_at};
use crate::common::Surus;
use crate::tls::metric;

const LOG: &str = "error_log(str_repeat('x', (int) ($_GET['mib'] ?? 0) << 20).'end');";

/// A site whose script logs as much as the query says.
fn site() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let patient = "[http]\nrequest_timeout = \"10m\"\n";
    std::fs::write(dir.path().join("surus.toml"), patient).unwrap();
    let plain = format!("<?php {LOG} echo 'logged';");
    std::fs::write(dir.path().join("plain.php"), plain).unwrap();
    let booted = format!("<?php surus_serve(function () {{ {LOG} echo 'logged'; }});");
    std::fs::write(dir.path().join("booted.php"), booted).unwrap();
    dir
}

fn serve(dir: &Path, entry: &EngineEntry) -> Surus {
    let script = match entry.boots_script() {
        true => "booted.php",
        false => "plain.php",
    };
    let script = dir.join(script);
    let settings = [("SURUS_ACCESS_LOG_FORMAT", "off")];
    let script = script.to_str().unwrap();
    let args = ["--engine", entry.name, "--workers", "4", "--script", script];
    let args = [&args[..], &["-d", "memory_limit=1G"]].concat();
    Surus::spawn(dir, &args, &settings)
        .unwrap_or_else(|log| panic!("surus did not start {}:\n{log}", entry.name))
}

/// The whole response.
pub fn get(address: &str, path: &str) -> String {
    String::from_utf8(get_with(address, path, "")).unwrap()
}

/// The whole response to a request with these header lines.
pub fn get_with(address: &str, path: &str, headers: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

#[test]
fn messages_of_100_mib_are_cut_and_memory_stays_bounded() {
    let dir = site();
    for entry in CATALOGUE.iter().filter(|entry| entry.runs_scripts()) {
        let surus = serve(dir.path(), entry);
        let warm = get(&surus.address, "/?mib=0");
        assert!(warm.contains("logged"), "{}: {warm}", entry.name);
        let (pid, before) = (surus.front(), resident(surus.front()));
        let sampler = Sampler::start(pid);
        let clients = (0..4).map(|_| {
            let address = surus.address.clone();
            std::thread::spawn(move || get(&address, "/?mib=100"))
        });
        for client in clients.collect::<Vec<_>>() {
            let answer = client.join().unwrap();
            assert!(answer.contains("logged"), "{}: {answer}", entry.name);
        }
        let grown = sampler.peak() / MIB;
        assert!(grown < 64, "{}: grew by {grown} MiB", entry.name);
        let after = settles_at(pid, before + 16 * MIB).saturating_sub(before) / MIB;
        assert!(after <= 16, "{}: {after} MiB stayed", entry.name);
        // 100 MiB and `end`, minus the kept 64 KiB. php-fpm cuts by itself (its `log_limit`) and
        // does not report it.
        let cut = match entry.name {
            "fpm" => "INFO PHP message: xxx",
            _ => " [cut: 10479",
        };
        surus.wait_for_log(|log| log.matches(cut).count() == 4);
        let counted = metric(dir.path(), "surus_log_messages_cut_total ");
        assert_eq!(
            counted,
            if entry.name == "fpm" { 0 } else { 4 },
            "{}",
            entry.name
        );
        let longest = surus.log().lines().map(str::len).max();
        assert!(longest < Some(66_500), "{}: {longest:?}", entry.name);
    }
}
