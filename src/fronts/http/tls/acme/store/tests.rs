//! Tests how the state directory is written and read, and what happens where it cannot be.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn store(dir: &Path) -> (Store, Settings) {
    let settings = Settings {
        domains: vec!["example.org".parse().unwrap()],
        directory: Some("state/acme".into()),
        ..Settings::default()
    };
    (Store::new(&settings, dir).unwrap(), settings)
}

#[test]
fn results_are_stored_for_this_user_alone_and_replaced_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (store, settings) = store(dir.path());
    let (authority, domain) = (&settings.authorities[0], &settings.domains[0]);
    assert!(store.certificates(&settings).unwrap()[0].files.is_empty());
    store.make_ready(&settings.authorities).unwrap();
    let result = Arc::new(tempfile::tempfile().unwrap());
    store.keep_certificate(authority, domain, &result).unwrap();
    assert!(store.certificates(&settings).unwrap()[0].files.is_empty());
    for name in ["A", "B"] {
        let pem = format!("-----BEGIN {name}-----\n-----END {name}-----\n");
        fill(&result, pem.as_bytes()).unwrap();
        store.keep_certificate(authority, domain, &result).unwrap();
        let all = store.certificates(&settings).unwrap();
        assert_eq!(all[0].files[0].as_ref().ok().unwrap().text, pem);
    }
    let path = store.certificate(authority, domain);
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
    let parent = path.parent().unwrap();
    assert_eq!(parent.metadata().unwrap().mode() & 0o777, 0o700);
    assert_eq!(std::fs::read_dir(&store.dir).unwrap().count(), 4);
    result.set_len(MAX_BYTES + 1).unwrap();
    assert!(store.keep_certificate(authority, domain, &result).is_err());
    std::fs::write(&path, "damaged").unwrap();
    let all = store.certificates(&settings).unwrap();
    assert!(
        all[0].files[0]
            .as_ref()
            .err()
            .unwrap()
            .contains("not a PEM file")
    );
}

/// Makes the certificate's path one that cannot be written, also by root.
fn obstruct(path: &Path) {
    std::fs::create_dir_all(path.join("obstacle")).unwrap();
}

#[test]
fn certificate_that_cannot_be_stored_is_read_from_memory_until_it_can_be() {
    let dir = tempfile::tempdir().unwrap();
    let (store, settings) = store(dir.path());
    let (authorities, domain) = (&settings.authorities, &settings.domains[0]);
    store.make_ready(authorities).unwrap();
    let keep = |name: &str| {
        let pem = format!("-----BEGIN {name}-----\n-----END {name}-----\n");
        let result = Arc::new(tempfile::tempfile().unwrap());
        fill(&result, pem.as_bytes()).unwrap();
        store.keep_certificate(&authorities[0], domain, &result)
    };
    let served = || {
        let acquired = store.certificates(&settings).unwrap().remove(0);
        let file = acquired.files.into_iter().next().unwrap();
        (file.ok().unwrap().text, acquired.unstored)
    };
    keep("FIRST").unwrap();
    let path = store.certificate(&authorities[0], domain);
    std::fs::remove_file(&path).unwrap();
    obstruct(&path);
    // The last one counts.
    for name in ["SECOND", "THIRD"] {
        let error = format!("{:#}", keep(name).unwrap_err());
        let (text, unstored) = served();
        assert!(text.contains(name), "{text}");
        assert_eq!(unstored.unwrap(), error);
        let named = format!("cannot write {} (acme.directory)", path.display());
        assert!(error.starts_with(&named), "{error}");
    }
    assert!(store.store_again(authorities, domain).is_err());
    std::fs::remove_dir_all(&path).unwrap();
    store.store_again(authorities, domain).unwrap();
    let (text, unstored) = served();
    assert!(text.contains("THIRD") && unstored.is_none());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    assert!(store.unstored.all().is_empty());
}

#[test]
fn certificate_that_is_in_memory_only_is_stored_when_the_process_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (store, settings) = store(dir.path());
    let (authority, domain) = (&settings.authorities[0], &settings.domains[0]);
    store.make_ready(&settings.authorities).unwrap();
    let path = store.certificate(authority, domain);
    obstruct(&path);
    let result = Arc::new(tempfile::tempfile().unwrap());
    fill(&result, b"content").unwrap();
    assert!(store.keep_certificate(authority, domain, &result).is_err());
    let is_stored = || {
        Store::store_last(&store.unstored);
        store.unstored.all().is_empty()
    };
    assert!(!is_stored());
    // Others may read what is in it.
    std::fs::remove_dir_all(&path).unwrap();
    let open = |mode| std::fs::set_permissions(&store.dir, PermissionsExt::from_mode(mode));
    open(0o755).unwrap();
    assert!(!is_stored() && !path.exists());
    // The directories were removed, too.
    std::fs::remove_dir_all(&store.dir).unwrap();
    assert!(is_stored());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "content");
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
    for dir in path.ancestors().skip(1).take(3) {
        assert_eq!(dir.metadata().unwrap().mode() & 0o777, 0o700, "{dir:?}");
    }
}

#[test]
fn certificate_of_an_earlier_authority_is_read_until_there_is_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let (store, settings) = store(dir.path());
    let domain = &settings.domains[0];
    let earlier = "authorities = ['https://ca.example/old', 'letsencrypt-staging']";
    let earlier: Settings = toml::from_str(earlier).unwrap();
    store.make_ready(&settings.authorities).unwrap();
    store.make_ready(&earlier.authorities).unwrap();
    let keep = |authority: &Authority, pem: &str| {
        let result = Arc::new(tempfile::tempfile().unwrap());
        fill(&result, pem.as_bytes()).unwrap();
        store.keep_certificate(authority, domain, &result).unwrap();
    };
    let issue = || {
        let made = rcgen::generate_simple_self_signed([domain.to_string()]).unwrap();
        format!("{}{}", made.signing_key.serialize_pem(), made.cert.pem())
    };
    let served = || {
        let acquired = store.certificates(&settings).unwrap().remove(0);
        let files = acquired.files.into_iter();
        let texts = files.map(|file| file.ok().unwrap().text);
        texts.collect::<Vec<_>>()
    };
    let (old, new) = (issue(), issue());
    keep(&earlier.authorities[1], &issue());
    assert!(served().is_empty());
    keep(&earlier.authorities[0], &old);
    assert_eq!(served().len(), 1);
    // It has PEM blocks, and no certificate.
    let damaged = "-----BEGIN X-----\n-----END X-----\n";
    keep(&settings.authorities[0], damaged);
    let [first, second] = <[String; 2]>::try_from(served()).unwrap();
    assert_eq!(first, damaged);
    assert!(second.lines().eq(old.lines()), "{second}");
    keep(&settings.authorities[0], &new);
    assert_eq!(served().len(), 1);
}

/// Such as the servers of two applications.
#[test]
fn servers_that_share_the_directory_keep_each_others_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let keep = |name: char| {
        let (store, settings) = store(dir.path());
        let authority = &settings.authorities[0];
        let domain: Domain = format!("{name}.example.org").parse().unwrap();
        let lines = name.to_string().repeat(100_000);
        let pem = format!("-----BEGIN X-----\n{lines}\n-----END X-----\n");
        let result = Arc::new(tempfile::tempfile().unwrap());
        fill(&result, pem.as_bytes()).unwrap();
        for _ in 0..20 {
            store.make_ready(&settings.authorities).unwrap();
            store.keep_certificate(authority, &domain, &result).unwrap();
            let kept = std::fs::read_to_string(store.certificate(authority, &domain)).unwrap();
            assert!(kept == pem, "{domain} has {} bytes", kept.len());
        }
    };
    std::thread::scope(|scope| {
        for name in ['a', 'b', 'c'] {
            scope.spawn(move || keep(name));
        }
    });
    let (store, _) = store(dir.path());
    assert_eq!(std::fs::read_dir(&store.dir).unwrap().count(), 4);
}

#[test]
fn new_file_of_a_killed_process_is_removed_and_that_of_another_server_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (store, settings) = store(dir.path());
    store.make_ready(&settings.authorities).unwrap();
    let [old, fresh] = [".surus-new-old", ".surus-new-fresh"].map(|name| store.dir.join(name));
    for file in [&old, &fresh] {
        std::fs::write(file, "").unwrap();
    }
    let hours_ago = SystemTime::now() - 2 * LEFT_OVER;
    let file = File::options().write(true).open(&old).unwrap();
    file.set_modified(hours_ago).unwrap();
    store.make_ready(&settings.authorities).unwrap();
    assert!(!old.exists() && fresh.exists());
}

#[test]
fn directory_that_others_may_read_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (store, settings) = store(dir.path());
    store.make_ready(&settings.authorities).unwrap();
    std::fs::set_permissions(&store.dir, PermissionsExt::from_mode(0o750)).unwrap();
    let refused = store.certificates(&settings).err().unwrap();
    assert!(refused.to_string().contains("mode 700"), "{refused}");
    assert!(store.make_ready(&settings.authorities).is_err());
}

#[test]
fn failures_are_counted_until_a_success() {
    let dir = tempfile::tempdir().unwrap();
    let (store, settings) = store(dir.path());
    let domain = &settings.domains[0];
    store.make_ready(&settings.authorities).unwrap();
    assert_eq!(store.failures(domain), AttemptFailures::default());
    store.note(domain, Some(3)).unwrap();
    let failures = store.failures(domain);
    assert!(
        failures.count == 3 && failures.age.is_some(),
        "{failures:?}"
    );
    std::fs::write(store.failure(domain), "damaged").unwrap();
    assert_eq!(store.failures(domain).count, 1);
    let future = SystemTime::now() + Duration::from_secs(1000);
    let file = File::options().write(true).open(store.failure(domain));
    file.unwrap().set_modified(future).unwrap();
    assert_eq!(store.failures(domain).age, None);
    store.note(domain, None).unwrap();
    store.note(domain, None).unwrap();
    assert_eq!(store.failures(domain), AttemptFailures::default());
}
