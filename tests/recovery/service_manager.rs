//! Tests what a service manager such as systemd is told.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::common::Surus;
use crate::site::app;

#[test]
fn service_manager_is_notified_of_start_reload_and_shutdown() {
    let dir = app();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(120)))
        .unwrap();
    let next = || {
        let mut buffer = [0; 1000];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let env = [("NOTIFY_SOCKET", path.to_str().unwrap())];
    let mut surus = Surus::spawn(dir.path(), &["--workers", "1"], &env)
        .unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
    assert_eq!(next(), "READY=1");
    for signal in ["HUP", "USR2", "HUP"] {
        surus.signal(signal);
        let told = next();
        assert!(told.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{told}");
        assert_eq!(next(), "READY=1");
        // From now on, the reload fails, and the old version goes on.
        std::fs::write(dir.path().join("surus.toml"), "engine.workers = 'many'").unwrap();
    }
    surus.wait_for_log(|log| log.contains("reloaded") && log.contains("the reload failed"));
    surus.signal("TERM");
    assert_eq!(next(), "STOPPING=1");
    assert!(surus.wait().success());
}
