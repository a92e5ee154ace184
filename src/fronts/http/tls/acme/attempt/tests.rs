//! Tests which ends of an attempt count as failures, and what is kept of it.

use super::*;

fn both() -> Challenges {
    Challenges {
        http: true,
        tls: true,
    }
}

#[test]
fn attempt_that_a_shutdown_ends_is_not_counted() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        domains: vec!["a.example".parse().unwrap()],
        directory: Some("state/acme".into()),
        ..Settings::default()
    };
    let (challenges, unstored) = (both(), Arc::default());
    let failures_after = |exit: Option<i32>, is_shutdown: bool| {
        let attempt = Attempt::prepare(&settings, dir.path(), 0, challenges, false, &unstored);
        let attempt = attempt.unwrap();
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

/// Once for the first certificate, and once for its renewal.
#[test]
fn certificate_that_cannot_be_stored_is_kept_in_memory_and_not_ordered_again() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        domains: vec!["a.example".parse().unwrap()],
        directory: Some("state/acme".into()),
        ..Settings::default()
    };
    let (project, domain) = (dir.path(), &settings.domains[0]);
    let unstored = Arc::default();
    let prepare = || Attempt::prepare(&settings, project, 0, both(), false, &unstored);
    let store = || Store::with_unstored(&settings, project, &unstored).unwrap();
    let issue = || {
        let made = rcgen::generate_simple_self_signed([domain.to_string()]).unwrap();
        format!("{}{}", made.signing_key.serialize_pem(), made.cert.pem())
    };
    let served = |attempt: &Attempt| {
        let current = attempt.current().unwrap();
        current.served.leaf().unwrap().to_vec()
    };
    let failures = || store().failures(domain).count;
    let authority = settings.authorities[0].file_name();
    let path = project.join(format!("state/acme/certificates/{authority}/a.example.pem"));
    for has_one in [false, true] {
        let attempt = prepare().unwrap();
        assert_eq!(attempt.current().is_some(), has_one);
        fill(&attempt.sources[0].new_certificate, issue().as_bytes()).unwrap();
        // Not even root can replace a directory by a file.
        if has_one {
            std::fs::remove_file(&path).unwrap();
        }
        std::fs::create_dir_all(path.join("obstacle")).unwrap();
        attempt.keep(&settings, project, Some(status::DONE), false);
        assert_eq!(failures(), 1);
        let acquired = store().certificates(&settings).unwrap().remove(0);
        let why = acquired.unstored.unwrap();
        assert!(why.contains(&*path.to_string_lossy()), "{why}");
        assert!(acquired.files[0].is_ok());
        // As long as it is not stored, nothing is ordered.
        assert!(prepare().is_err());
        std::fs::remove_dir_all(&path).unwrap();
        let next = prepare().unwrap();
        let memory = Arc::default();
        let restarted = Attempt::prepare(&settings, project, 0, both(), false, &memory);
        assert_eq!(served(&restarted.unwrap()), served(&next));
        next.keep(&settings, project, Some(status::DONE), false);
        assert_eq!(failures(), 0);
    }
}
