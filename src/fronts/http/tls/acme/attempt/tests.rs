//! Tests which ends of an attempt count as failures.

use super::*;

#[test]
fn attempt_that_a_shutdown_ends_is_not_counted() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        domains: vec!["a.example".parse().unwrap()],
        directory: Some("state/acme".into()),
        ..Settings::default()
    };
    let challenges = Challenges {
        http: true,
        tls: true,
    };
    let failures_after = |exit: Option<i32>, is_shutdown: bool| {
        let attempt = Attempt::prepare(&settings, dir.path(), 0, challenges, false).unwrap();
        attempt.keep(&settings, dir.path(), exit, is_shutdown);
        let store = Store::new(&settings, dir.path()).unwrap();
        store.failures(&settings.domains[0]).count
    };
    let killed = None;
    for (exit, is_shutdown, failures) in [
        (killed, true, 0),
        (Some(status::FAILED), true, 0),
        (killed, false, 1),
        (Some(status::FAILED), false, 2),
        (killed, true, 2),
        (Some(status::TOO_EARLY), false, 2),
        // The certificate arrived before the end.
        (Some(status::DONE), true, 0),
    ] {
        let counted = failures_after(exit, is_shutdown);
        assert_eq!(counted, failures, "{exit:?}, shutdown: {is_shutdown}");
    }
}
