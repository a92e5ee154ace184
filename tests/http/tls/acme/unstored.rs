//! Tests certificates that are issued and cannot be stored: a domain's first one, and a renewal.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use super::pebble::{Behaviour, Pebble};
use super::{Acme, OBTAINED, Place, file_name, wait_for_attempt};
use crate::common::certificates::Authority;
use crate::tls::metric;

/// A state directory that a test can make unwritable: full if it runs as root, who may write into
/// any directory, and otherwise read-only.
struct StateDirectory {
    path: PathBuf,
    is_mounted: bool,
}

impl StateDirectory {
    /// None if nothing can be mounted here.
    fn make(place: &Place) -> Option<StateDirectory> {
        let path = place.directory();
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        let is_mounted = surus_sys::process::is_root();
        if is_mounted {
            let mut command = Command::new("mount");
            command.args(["-t", "tmpfs", "-o", "size=1m,mode=700", "none"]);
            if !command.arg(&path).status().unwrap().success() {
                eprintln!("not tested: nothing can be mounted here");
                return None;
            }
        }
        Some(StateDirectory { path, is_mounted })
    }

    fn block(&self) {
        if self.is_mounted {
            let mut file = File::create(self.path.join("full")).unwrap();
            while file.write_all(&[0; 4096]).is_ok() {}
        } else {
            std::fs::set_permissions(&self.path, Permissions::from_mode(0o500)).unwrap();
        }
    }

    fn unblock(&self) {
        if self.is_mounted {
            std::fs::remove_file(self.path.join("full")).unwrap();
        } else {
            std::fs::set_permissions(&self.path, Permissions::from_mode(0o700)).unwrap();
        }
    }
}

impl Drop for StateDirectory {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = Command::new("umount")
                .arg("--lazy")
                .arg(&self.path)
                .status();
        }
    }
}

fn surus(command: &str, place: &Place) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg(command)
        .arg(place.site.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn store_failures(place: &Place) -> u64 {
    let name = "surus_acme_store_failures_total{domain=\"a.example\"}";
    metric(place.site.path(), name)
}

const DOMAIN: [&str; 2] = ["--domain", "a.example"];

/// Has a certificate issued while the directory cannot be written, and checks how it is served.
fn issue_unstored(pebble: &Pebble, place: &Place, state: &StateDirectory) -> Acme {
    let acme = place.serve(pebble, &DOMAIN, &[]);
    // It waits for the validation.
    acme.wait_for(1, "ACME account created");
    state.block();
    acme.open(pebble);
    acme.wait_for(1, OBTAINED);
    let roots = pebble.roots();
    acme.surus()
        .wait_for_log(|_| acme.is_trusted("a.example", &roots));
    wait_for_attempt(&acme, place, "issued");
    assert!(store_failures(place) >= 1);
    let log = acme.surus().log();
    let unwritten = format!(
        "cannot write {} (acme.directory)",
        file(pebble, place).display()
    );
    for words in [&*unwritten, "free space or allow writing"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    let status = surus("status", place);
    for words in ["certificate of a.example is in memory only", &unwritten] {
        assert!(status.contains(words), "{words}: {status}");
    }
    // Trying again orders no other one.
    surus("reload", place);
    acme.surus().wait_for_log(|_| store_failures(place) >= 2);
    acme.wait_for(1, "the one in use is in memory only");
    assert_eq!(acme.surus().log().matches(OBTAINED).count(), 1);
    assert!(acme.is_trusted("a.example", &roots));
    acme
}

fn file(pebble: &Pebble, place: &Place) -> PathBuf {
    let authority = file_name(&pebble.url);
    place
        .directory()
        .join(format!("certificates/{authority}/a.example.pem"))
}

/// Serves the site again, with the stored certificate.
fn check_stored(pebble: &Pebble, place: &Place) {
    assert_eq!(place.files("accounts").len(), 1);
    let acme = place.serve(pebble, &DOMAIN, &[]);
    let roots = pebble.roots();
    assert!(acme.is_trusted("a.example", &roots));
    let log = acme.surus().log();
    assert!(!log.contains(OBTAINED), "{log}");
}

#[test]
fn first_certificate_that_cannot_be_stored_is_served_and_stored_later() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let Some(state) = StateDirectory::make(&place) else {
        return;
    };
    let acme = issue_unstored(&pebble, &place, &state);
    assert!(!file(&pebble, &place).exists());
    if surus_sys::process::is_root() {
        // The keeper has it, too.
        let front = acme.surus().front().to_string();
        let killed = Command::new("kill").args(["-KILL", &front]).status();
        assert!(killed.unwrap().success());
        acme.wait_for(1, "the front end exited");
        let roots = pebble.roots();
        acme.surus()
            .wait_for_log(|_| acme.is_trusted("a.example", &roots));
        acme.wait_for(2, "the one in use is in memory only");
    }
    state.unblock();
    surus("reload", &place);
    acme.surus()
        .wait_for_log(|_| file(&pebble, &place).exists());
    acme.surus()
        .wait_for_log(|_| !surus("status", &place).contains("in memory only"));
    assert_eq!(acme.surus().log().matches(OBTAINED).count(), 1);
    drop(acme);
    check_stored(&pebble, &place);
}

#[test]
fn renewal_that_cannot_be_stored_is_served_and_stored_at_the_shutdown() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let Some(state) = StateDirectory::make(&place) else {
        return;
    };
    let expired = Authority::new("Old").issue_until(&["a.example"], 2001);
    place.leave_certificate(&pebble.url, "a.example", &expired);
    let stored = || std::fs::read_to_string(file(&pebble, &place)).unwrap();
    let before = stored();
    let mut acme = issue_unstored(&pebble, &place, &state);
    assert_eq!(stored(), before);
    state.unblock();
    acme.0.surus.signal("TERM");
    acme.0.surus.wait();
    drop(acme);
    assert_ne!(stored(), before);
    check_stored(&pebble, &place);
}
