//! Tests what Surus keeps of certificates: damage, loss, a full disk, permissions.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::pebble::{Behaviour, Pebble};
use super::{OBTAINED, Place, file_name};
use crate::common::Surus;

#[test]
fn damaged_state_is_replaced() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let authority = file_name(&pebble.url);
    place.leave(&format!("accounts/{authority}.json"), "{\"id\":");
    let truncated = "-----BEGIN CERTIFICATE-----\nAAAA";
    place.leave(
        &format!("certificates/{authority}/a.example.pem"),
        truncated,
    );
    place.leave("failures/a.example", "\u{0}");
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    let failures = place.directory().join("failures/a.example");
    let file = std::fs::File::options()
        .write(true)
        .open(&failures)
        .unwrap();
    file.set_modified(long_ago).unwrap();
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    assert_eq!(acme.get("a.example"), (200, None));
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    let roots = pebble.roots();
    acme.surus()
        .wait_for_log(|_| acme.is_trusted("a.example", &roots));
    let log = acme.surus().log();
    assert!(log.contains("the account's file is damaged"), "{log}");
}

#[test]
fn account_that_the_authority_has_lost_is_replaced() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    drop(acme);
    let account = place.files("accounts").remove(0);
    let text = std::fs::read_to_string(&account).unwrap();
    let (known, _) = text.split_once("/my-account/").unwrap();
    let (_, rest) = text.split_once("/my-account/").unwrap();
    let (_, rest) = rest.split_once('"').unwrap();
    std::fs::write(&account, format!("{known}/my-account/none\"{rest}")).unwrap();
    let acme = place.serve(&pebble, &["--domain", "b.example"], &[]);
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    acme.wait_for(1, "ACME account created");
    let account = || std::fs::read_to_string(&account).unwrap();
    acme.surus()
        .wait_for_log(|_| !account().contains("/my-account/none"));
}

#[test]
fn full_disk_costs_no_order_and_serving_goes_on() {
    if !surus_sys::process::is_root() {
        return;
    }
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    std::fs::create_dir(place.directory()).unwrap();
    let mount = |options: &str| {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "none"]);
        command.arg(place.directory()).status().unwrap().success()
    };
    if !mount("size=4k,mode=700") {
        eprintln!("not tested: nothing can be mounted here");
        return;
    }
    let _unmounted = Unmounted(place.directory());
    std::fs::write(place.directory().join("full"), [0; 4096]).unwrap();
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    acme.open(&pebble);
    acme.wait_for(1, "cannot write to");
    let log = acme.surus().log();
    assert!(
        log.contains("(acme.directory)") && log.contains("No space left"),
        "{log}"
    );
    assert_eq!(acme.get("a.example"), (200, None));
    assert!(mount("remount,size=4m,mode=700"));
    let reload = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("reload")
        .arg(place.site.path())
        .status();
    assert!(reload.unwrap().success());
    acme.wait_for(1, OBTAINED);
}

struct Unmounted(PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn state_that_others_may_read_stops_the_start() {
    let place = Place::new();
    place.leave("accounts/x.json", "{}");
    let open = Permissions::from_mode(0o755);
    std::fs::set_permissions(place.directory(), open).unwrap();
    let env = [
        ("SURUS_TLS_LISTEN", "127.0.0.1:0"),
        ("SURUS_ACME_DIRECTORY", place.directory().to_str().unwrap()),
    ]
    .map(|(name, value)| (name, value.to_owned()));
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    let refused = Surus::spawn(place.site.path(), &["--domain", "a.example"], &env);
    let said = refused.err().unwrap();
    assert!(said.contains("with mode 700"), "{said}");
}
