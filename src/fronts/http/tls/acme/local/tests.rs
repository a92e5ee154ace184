//! Tests of the local authority.

use std::os::unix::fs::MetadataExt;

use super::*;

fn settings(directory: &Path, domains: &[&str]) -> Settings {
    Settings {
        domains: domains.iter().map(|name| name.parse().unwrap()).collect(),
        directory: Some(directory.join("acme")),
        ..Settings::default()
    }
}

/// Whether clients that trust the authority accept a certificate for this name.
fn is_accepted(root: &[u8], leaf: &[u8], name: &str) -> bool {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(root).unwrap())
        .unwrap();
    let provider = ring::default_provider().into();
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
        .build()
        .unwrap();
    let leaf = CertificateDer::from_pem_slice(leaf).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let verified = verifier.verify_server_cert(&leaf, &[], &name, &[], UnixTime::now());
    verified.is_ok()
}

#[test]
fn certificates_of_local_names_are_accepted_and_renewed_by_the_same_authority() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path(), &["localhost", "shop.test", "example.org"]);
    let store = Store::new(&settings, dir.path()).unwrap();
    let local = LocalAuthority::new(&store);
    local.renew(&settings).unwrap();
    let read = |path: PathBuf| std::fs::read(path).unwrap();
    let root = read(local.certificate().unwrap());
    for (domain, name) in [
        (0, "localhost"),
        (0, "127.0.0.1"),
        (0, "::1"),
        (1, "shop.test"),
    ] {
        let leaf = read(store.local(&settings.domains[domain]));
        assert!(is_accepted(&root, &leaf, name), "{name}");
        assert!(!is_accepted(&root, &leaf, "example.org"));
    }
    assert!(!store.local(&settings.domains[2]).exists());
    let first = store.local(&settings.domains[0]);
    assert_eq!(first.metadata().unwrap().mode() & 0o777, 0o600);
    let before = read(first.clone());
    local.renew(&settings).unwrap();
    assert_eq!(read(first.clone()), before);
    std::fs::write(&first, "damaged").unwrap();
    local.renew(&settings).unwrap();
    assert!(is_accepted(&root, &read(first), "localhost"));
}

/// Browsers trust it, and a new one would be of another name.
#[test]
fn authority_stays_when_the_clock_is_set_back_and_right_again() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path(), &["localhost"]);
    let store = Store::new(&settings, dir.path()).unwrap();
    let at = |now| LocalAuthority {
        now,
        ..LocalAuthority::new(&store)
    };
    let now = SystemTime::now();
    let read = |path: PathBuf| std::fs::read(path).unwrap();
    let root = read(at(now).certificate().unwrap());
    at(now).renew(&settings).unwrap();
    let leaf = || read(store.local(&settings.domains[0]));
    let first = leaf();
    let back = at(now - 400 * DAY);
    back.renew(&settings).unwrap();
    assert_eq!(read(back.certificate().unwrap()), root);
    let second = leaf();
    assert_ne!(second, first);
    assert_eq!(
        back.state(&store.local(&settings.domains[0])),
        FileState::Valid
    );
    back.renew(&settings).unwrap();
    assert_eq!(leaf(), second);
    at(now).renew(&settings).unwrap();
    assert_eq!(read(at(now).certificate().unwrap()), root);
    assert!(is_accepted(&root, &leaf(), "localhost"));
}

#[test]
fn authority_certifies_no_name_of_the_internet() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path(), &["localhost"]);
    let store = Store::new(&settings, dir.path()).unwrap();
    let local = LocalAuthority::new(&store);
    let root = std::fs::read(local.certificate().unwrap()).unwrap();
    let issuer = local.issuer().unwrap();
    for name in ["example.org", "localhost.example.org", "10.0.0.1"] {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.use_authority_key_identifier_extension = true;
        valid_for(&mut params, LIFETIME, SystemTime::now());
        let leaf = params
            .signed_by(&KeyPair::generate().unwrap(), &issuer)
            .unwrap();
        assert!(!is_accepted(&root, leaf.pem().as_bytes(), name), "{name}");
    }
}

#[test]
fn authority_that_was_damaged_is_reported_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path(), &["localhost"]);
    let store = Store::new(&settings, dir.path()).unwrap();
    let local = LocalAuthority::new(&store);
    let certificate = std::fs::read(local.certificate().unwrap()).unwrap();
    std::fs::write(local.root_file(), certificate).unwrap();
    let error = local.renew(&settings).unwrap_err().to_string();
    assert!(error.contains("surus trust"), "{error}");
}

#[test]
fn authority_with_the_key_of_another_is_reported_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path(), &["localhost"]);
    let store = Store::new(&settings, dir.path()).unwrap();
    let local = LocalAuthority::new(&store);
    let certificate = std::fs::read_to_string(local.certificate().unwrap()).unwrap();
    let other = KeyPair::generate().unwrap().serialize_pem();
    std::fs::write(local.root_file(), certificate + &other).unwrap();
    let error = local.renew(&settings).unwrap_err().to_string();
    assert!(error.contains("surus trust"), "{error}");
}

/// Follows the error's remedy.
#[test]
fn certificates_of_a_removed_authority_are_replaced_by_those_of_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path(), &["localhost", "shop.test"]);
    let store = Store::new(&settings, dir.path()).unwrap();
    let local = LocalAuthority::new(&store);
    local.renew(&settings).unwrap();
    let read = |path: PathBuf| std::fs::read(path).unwrap();
    let before = read(local.certificate().unwrap());
    std::fs::write(local.root_file(), &before).unwrap();
    let error = local.certificate().unwrap_err().to_string();
    assert!(
        error.contains("remove it, and run `surus trust`"),
        "{error}"
    );
    std::fs::remove_file(local.root_file()).unwrap();
    let root = read(local.certificate().unwrap());
    assert_ne!(root, before);
    local.renew(&settings).unwrap();
    let leaves = || [0, 1].map(|domain| read(store.local(&settings.domains[domain])));
    let [localhost, shop] = leaves();
    assert!(is_accepted(&root, &localhost, "localhost"));
    assert!(is_accepted(&root, &shop, "shop.test"));
    assert!(!is_accepted(&before, &localhost, "localhost"));
    local.renew(&settings).unwrap();
    assert_eq!(leaves(), [localhost, shop]);
    // A server may come before the command.
    std::fs::remove_file(local.root_file()).unwrap();
    local.renew(&settings).unwrap();
    let root = read(local.certificate().unwrap());
    assert!(is_accepted(&root, &leaves()[0], "localhost"));
}

#[test]
fn lost_certificate_of_the_authority_is_written_again_and_the_authority_stays() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path(), &["localhost"]);
    let store = Store::new(&settings, dir.path()).unwrap();
    let local = LocalAuthority::new(&store);
    local.renew(&settings).unwrap();
    let leaf = || std::fs::read(store.local(&settings.domains[0])).unwrap();
    let issued = leaf();
    let public = local.certificate().unwrap();
    let root = read_certificate(&public).unwrap();
    std::fs::remove_file(&public).unwrap();
    // For `surus trust --remove`.
    let known = local.known_certificate().unwrap();
    assert_eq!(read(&known).unwrap().pem, pem(&root));
    assert_eq!(local.certificate().unwrap(), public);
    assert_eq!(read_certificate(&public), Some(root));
    local.renew(&settings).unwrap();
    assert_eq!(leaf(), issued);
}

/// The name alone says nothing: any user can write it into a certificate.
#[test]
fn certificate_with_other_names_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("root.crt");
    let key = KeyPair::generate().unwrap();
    let now = SystemTime::now();
    let good = root(&key, now).unwrap();
    let mut free = root(&key, now).unwrap();
    free.name_constraints = None;
    let mut wide = root(&key, now).unwrap();
    if let Some(constraints) = &mut wide.name_constraints {
        let more = GeneralSubtree::DnsName("org".into());
        constraints.permitted_subtrees.push(more);
    }
    let [good, free, wide] =
        [good, free, wide].map(|params| params.self_signed(&key).unwrap().pem());
    for wrong in [&free, &wide] {
        std::fs::write(&file, wrong).unwrap();
        let error = read(&file).err().unwrap().to_string();
        assert!(error.contains("permits other names"), "{error}");
    }
    // All certificates of the file would be trusted, too.
    std::fs::write(&file, format!("{good}{free}")).unwrap();
    let trusted = read(&file).unwrap();
    let lines = |pem: &str| pem.lines().map(String::from).collect::<Vec<_>>();
    assert_eq!(lines(&trusted.pem), lines(&good));
    assert!(trusted.name.starts_with(NAME));
}
