//! Tests as whom the process runs that speaks to the authority.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use super::pebble::{Behaviour, Pebble};
use super::{Acme, OBTAINED, Place};
use crate::common::executable::copy_executable;

/// The process that speaks to the authority, while it does.
fn client(acme: &Acme) -> Option<u32> {
    let keeper = acme.surus().pid();
    let children = format!("/proc/{keeper}/task/{keeper}/children");
    let children = std::fs::read_to_string(children).unwrap();
    let mut all = children.split_whitespace();
    let found = all.find(|pid| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.trim() == "surus acme")
    });
    found.map(|pid| pid.parse().unwrap())
}

#[test]
fn process_that_speaks_to_the_authority_has_no_rights() {
    if !surus_sys::process::is_root() {
        return;
    }
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    // It waits for the validation.
    acme.surus().wait_for_log(|_| client(&acme).is_some());
    let pid = client(&acme).unwrap();
    assert_ne!(crate::common::user_of(pid).0, 0);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    for line in [
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
    ] {
        assert!(status.contains(line), "{line}: {status}");
    }
    assert!(status.contains("Seccomp:\t2"), "{status}");
    // Killed, it counts as a failure.
    let killed = Command::new("kill")
        .args(["-KILL", &pid.to_string()])
        .status();
    assert!(killed.unwrap().success());
    let failures = place.directory().join("failures/a.example");
    acme.surus().wait_for_log(|_| failures.exists());
    assert_eq!(acme.get("a.example"), (200, None));
    assert_eq!(client(&acme), None);
}

#[test]
fn attempt_in_flight_at_a_shutdown_is_no_failure() {
    if !surus_sys::process::is_root() {
        return;
    }
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    // It waits for the validation.
    acme.surus().wait_for_log(|_| client(&acme).is_some());
    drop(acme);
    assert!(!place.directory().join("failures/a.example").exists());
    // So the next start does not wait for a minute.
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
}

#[test]
fn attempt_in_flight_ends_when_a_reload_changes_its_settings() {
    if !surus_sys::process::is_root() {
        return;
    }
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    // It waits for the validation.
    acme.surus().wait_for_log(|_| client(&acme).is_some());
    let first = client(&acme);
    let changed = "acme.email = 'a@b.example'\n";
    std::fs::write(place.site.path().join("surus.toml"), changed).unwrap();
    let reload = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("reload")
        .arg(place.site.path())
        .status();
    assert!(reload.unwrap().success(), "{}", acme.surus().log());
    // The killed process counts as a failure, so that the next one waits for a minute.
    acme.wait_for(1, "because earlier ones have failed");
    let log = acme.surus().log();
    assert!(!log.contains("cannot start to get a certificate"), "{log}");
    assert_ne!(client(&acme), first);
}

#[test]
fn server_of_a_user_gets_certificates_itself() {
    if !surus_sys::process::is_root() {
        // All other tests test it.
        return;
    }
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let user = surus_sys::process::find_user("nobody", None)
        .unwrap()
        .unwrap();
    let build = Path::new(env!("CARGO_BIN_EXE_surus"));
    let here = place.state.path();
    for name in [
        "surus",
        &format!("surus-php{}", crate::common::php::minor()),
    ] {
        copy_executable(&build.with_file_name(name), &here.join(name));
    }
    let runtime = here.join("run");
    for directory in [&runtime, &place.directory()] {
        std::fs::create_dir(directory).unwrap();
        std::os::unix::fs::chown(directory, Some(user.uid), None).unwrap();
        std::fs::set_permissions(directory, Permissions::from_mode(0o700)).unwrap();
    }
    for path in [
        place.site.path(),
        Path::new(&pebble.authority_ca()).parent().unwrap(),
    ] {
        std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new("setpriv");
    let (uid, gid) = (
        format!("--reuid={}", user.uid),
        format!("--regid={}", user.gid),
    );
    command
        .args([&uid, &gid, "--clear-groups"])
        .arg(here.join("surus"));
    let env = [("XDG_RUNTIME_DIR", runtime.to_str().unwrap())];
    let acme = place.serve_by(command, &pebble, &["--domain", "a.example"], &env);
    assert_eq!(acme.surus().front(), acme.surus().pid());
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    let roots = pebble.roots();
    acme.surus()
        .wait_for_log(|_| acme.is_trusted("a.example", &roots));
    let stored = place.files("accounts").remove(0).metadata().unwrap();
    assert_eq!((stored.uid(), stored.mode() & 0o777), (user.uid, 0o600));
}
