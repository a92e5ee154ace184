//! Tests HTTPS for localhost, with certificates of this machine.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::Surus;
use crate::common::executable::copy_executable;
use crate::wire::site;

use super::https_address;

/// Serves a site for localhost, with its authority in a directory next to the site's.
fn serve(dir: &Path, domains: &[&str]) -> (Surus, String) {
    let directory = dir.join("authority");
    let env = [
        ("SURUS_ACME_DIRECTORY", directory.to_str().unwrap()),
        ("SURUS_TLS_LISTEN", "127.0.0.1:0"),
        ("SURUS_ENGINE_WORKERS", "1"),
    ];
    let surus = Surus::spawn(dir, domains, &env).unwrap_or_else(|log| panic!("{log}"));
    let address = https_address(&surus);
    let port = address.rsplit(':').next().unwrap().to_owned();
    (surus, port)
}

fn curl(arguments: &[&str], url: &str) -> Output {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--max-time", "60"]);
    curl.args(arguments).arg(url).output().unwrap()
}

#[test]
fn localhost_and_names_for_tests_have_certificates_of_this_machine() {
    let dir = site();
    let (surus, port) = serve(dir.path(), &["--https", "--domain", "shop.test"]);
    let root = dir.path().join("authority/local/root.crt");
    let root = root.to_str().unwrap();
    let resolve = format!("shop.test:{port}:127.0.0.1");
    for host in ["localhost", "127.0.0.1", "shop.test"] {
        let url = format!("https://{host}:{port}/");
        let trusting = curl(&["--cacert", root, "--resolve", &resolve], &url);
        let errors = String::from_utf8_lossy(&trusting.stderr);
        // Without SNI, the first certificate is for localhost.
        assert!(trusting.status.success(), "{host}: {errors}{}", surus.log());
        assert!(!curl(&["--resolve", &resolve], &url).status.success());
    }
    // An authority that cannot reach this machine is not asked.
    assert!(
        !surus.log().contains("cannot get a certificate"),
        "{}",
        surus.log()
    );
}

/// In a mount namespace of its own: the stores of this machine stay as they are.
#[test]
fn trust_puts_the_authority_into_the_stores_and_takes_it_out() {
    let dir = site();
    let (_surus, port) = serve(dir.path(), &["--https"]);
    let script = "
        set -e
        mount --make-rprivate / || exit 99
        mount -t tmpfs tmpfs /usr/local/share/ca-certificates || exit 99
        cp -a /etc/ssl/certs $DIR/certs
        mount --bind $DIR/certs /etc/ssl/certs
        profile=$HOME/.config/mozilla/firefox/a.default
        for store in $HOME/.pki/nssdb $profile; do
            mkdir -p $store
            certutil -N -d sql:$store --empty-password
        done
        ask() { curl --silent --show-error --max-time 60 https://localhost:$PORT/; }
        $SURUS trust $DIR
        ask
        certutil -L -d sql:$HOME/.pki/nssdb | grep 'Surus local authority .*C,,'
        certutil -L -d sql:$profile | grep 'Surus local authority .*C,,'
        $SURUS trust $DIR
        $SURUS trust --remove $DIR
        if ask; then exit 3; fi
        if certutil -L -d sql:$HOME/.pki/nssdb | grep Surus; then exit 4; fi
        if certutil -L -d sql:$profile | grep Surus; then exit 5; fi
        $SURUS trust --remove $DIR";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]);
    command.env("SURUS", env!("CARGO_BIN_EXE_surus"));
    command.env("SURUS_ACME_DIRECTORY", dir.path().join("authority"));
    command.env("HOME", dir.path().join("home"));
    command.env_remove("XDG_CONFIG_HOME");
    command.env_remove("XDG_DATA_HOME");
    command.env("DIR", dir.path()).env("PORT", port);
    let output = command.output().unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    if output.status.code() == Some(99) || said.contains("unshare failed") {
        eprintln!("not tested: a mount namespace needs root");
        return;
    }
    assert!(output.status.success(), "{:?}: {said}", output.status);
    assert!(said.contains("system: trusted"), "{said}");
    assert!(said.contains("system: not trusted any more"), "{said}");
}

/// On Debian, the PATH of an ordinary user has no programs for root.
#[test]
fn ordinary_user_is_told_the_command_for_the_store_of_the_system() {
    let dir = site();
    let (_surus, _) = serve(dir.path(), &["--https"]);
    let root = std::fs::read(dir.path().join("authority/local/root.crt")).unwrap();
    let public = tempfile::tempdir().unwrap();
    std::fs::set_permissions(public.path(), Permissions::from_mode(0o755)).unwrap();
    let (program, file) = (public.path().join("surus"), public.path().join("root.crt"));
    copy_executable(env!("CARGO_BIN_EXE_surus").as_ref(), &program);
    std::fs::write(&file, root).unwrap();
    let trust = |options: &[&str]| {
        let mut command = Command::new(&program);
        command.arg("trust").args(options).arg("--certificate");
        command.arg(&file).current_dir("/").env_remove("HOME");
        command.env("PATH", "/usr/bin:/bin");
        if surus_sys::process::is_root() {
            command.uid(65534).gid(65534);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), said)
    };
    let (status, said) = trust(&[]);
    let remedy = format!("sudo surus trust --certificate {}", file.display());
    assert_eq!(status, Some(1));
    assert!(said.contains(&remedy), "{said}");
    let hint = "this user has no store; a browser makes it at its first start";
    assert!(said.contains(hint), "{said}");
    // The system does not trust it.
    let (status, said) = trust(&["--remove"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("system: not trusted any more"), "{said}");
    assert!(said.contains("this user has no store\n"), "{said}");
}

#[test]
fn authority_that_was_never_made_is_not_made_to_remove_it() {
    let dir = site();
    let directory = dir.path().join("authority");
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    command.args(["trust", "--remove"]).arg(dir.path());
    command.env("SURUS_ACME_DIRECTORY", &directory);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.contains("no local authority"), "{errors}");
    assert!(!directory.exists());
}

#[test]
fn certificate_of_another_authority_is_not_trusted() {
    let dir = site();
    let other = crate::common::certificates::Authority::new("Other");
    let file = dir.path().join("other.crt");
    std::fs::write(&file, other.pem).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    let output = command
        .args(["trust", "--certificate"])
        .arg(file)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors.contains("not the certificate of a local authority"),
        "{errors}"
    );
}
