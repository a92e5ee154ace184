//! Tests which certificates are served when files or their source change.

use std::sync::atomic::{AtomicBool, Ordering};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::files::{Pair, PemFile};
use super::*;

/// A source that has another certificate each time.
fn source(name: &'static str) -> CertificateSource {
    let file = move |text: String| PemFile {
        path: name.into(),
        text,
        is_public: false,
    };
    let read = move || -> anyhow::Result<TlsFiles> {
        let made = rcgen::generate_simple_self_signed(["a.example".to_owned()])?;
        let pair = Pair {
            certificate: file(made.cert.pem()),
            key: file(made.signing_key.serialize_pem()),
        };
        Ok(TlsFiles {
            pairs: vec![pair],
            sites: Vec::new(),
            client_ca: None,
            unrenewed: None,
            acquired: Vec::new(),
        })
    };
    CertificateSource {
        hosts: Arc::new(ByHost::new([], None)),
        read: Box::new(move || {
            let files = read();
            Box::pin(async move { files })
        }),
    }
}

#[tokio::test]
async fn files_of_a_replaced_source_are_not_served() {
    let (answers, metrics) = (Arc::default(), Arc::default());
    let settings = Settings::default();
    let tls = Tls::start(settings, source("first"), answers, metrics).await;
    let tls = tls.unwrap();
    let served = || {
        let current = tls.current.load();
        let first = &current.certificates[0];
        (first.path.clone(), first.leaf().map(<[u8]>::to_vec))
    };
    let late = tls.read().await.unwrap().unwrap();
    let late = tls.prepare(late).unwrap();
    let next = source("next");
    let loaded = tls.prepare_from(&next).await.unwrap();
    tls.exchange(next, loaded);
    let exchanged = served();
    assert_eq!(exchanged.0.to_str(), Some("next"));
    tls.change_over(late);
    assert_eq!(served(), exchanged);
    let changed = tls.read().await.unwrap().unwrap();
    tls.change_over(tls.prepare(changed).unwrap());
    assert_ne!(served(), exchanged);
}

#[tokio::test]
async fn files_are_read_by_one_reload_at_a_time() {
    let (inner, is_reading) = (source("first"), Arc::new(AtomicBool::new(false)));
    let read = move || -> Pending<'static, anyhow::Result<TlsFiles>> {
        let (files, is_reading) = ((inner.read)(), is_reading.clone());
        Box::pin(async move {
            assert!(!is_reading.swap(true, Ordering::SeqCst));
            tokio::task::yield_now().await;
            is_reading.store(false, Ordering::SeqCst);
            files.await
        })
    };
    let source = CertificateSource {
        hosts: Arc::new(ByHost::new([], None)),
        read: Box::new(read),
    };
    let tls = Tls::start(Settings::default(), source, Arc::default(), Arc::default()).await;
    let tls = tls.unwrap();
    let (one, other) = tokio::join!(watch::reload(&tls), watch::reload(&tls));
    one.and(other).unwrap();
}

/// A certificate and its key in one file.
fn made(host: &str, has_expired: bool) -> PemFile {
    let mut params = rcgen::CertificateParams::new([host.to_owned()]).unwrap();
    if has_expired {
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    }
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    PemFile {
        path: host.into(),
        text: format!("{certificate}{}", key.serialize_pem()),
        is_public: false,
    }
}

/// Reads these files of a domain.
fn load(
    domain: &str,
    files: &[&str],
    unrenewed: Option<&str>,
    before: Option<&Loaded>,
) -> anyhow::Result<Loaded> {
    let file = |text: &&str| {
        Ok(PemFile {
            path: "file.pem".into(),
            text: (*text).into(),
            is_public: false,
        })
    };
    let acquired = Acquired {
        domain: domain.into(),
        files: files.iter().map(file).collect(),
        unstored: None,
    };
    let files = TlsFiles {
        pairs: Vec::new(),
        sites: Vec::new(),
        client_ca: None,
        unrenewed: unrenewed.map(String::from),
        acquired: vec![acquired],
    };
    let (settings, hosts) = (Settings::default(), Arc::new(ByHost::new([], None)));
    Loaded::new(&settings, &hosts, files, before, &Arc::default())
}

#[test]
fn certificate_stays_while_its_file_is_damaged_and_goes_with_it() {
    let valid = made("a.example", false).text;
    let expired = made("a.example", true).text;
    let read = |files: Vec<&str>, before: Option<&Loaded>| {
        load("a.example", &files, None, before).unwrap()
    };
    let is_pending = |loaded: &Loaded| loaded.pending().count() == 1;
    let first = read(vec![&valid], None);
    assert!(!is_pending(&first));
    let damaged = read(vec!["damaged"], Some(&first));
    assert_eq!(damaged.certificates[0].leaf(), first.certificates[0].leaf());
    assert!(!is_pending(&damaged));
    let again = read(vec!["damaged"], Some(&damaged));
    assert!(!is_pending(&again));
    // Such as that of another authority.
    let others = read(vec!["damaged", &expired], Some(&again));
    assert_eq!(others.certificates[0].leaf(), first.certificates[0].leaf());
    assert!(is_pending(&read(vec![&expired], Some(&again))));
    assert!(is_pending(&read(vec![], Some(&again))));
    assert!(is_pending(&read(vec!["damaged"], None)));
}

#[test]
fn renewal_that_fails_is_an_error_only_without_a_local_certificate() {
    let valid = made("a.test", false).text;
    let why = Some("no room");
    let missing: &[&str] = &[];
    for files in [missing, &["damaged"]] {
        let error = load("a.test", files, why, None).err().unwrap();
        assert_eq!(error.to_string(), "no room");
    }
    let loaded = load("a.test", &[&*valid], why, None).unwrap();
    assert!(loaded.problems().any(|problem| problem == "no room"));
    let lost = load("a.test", &[], why, Some(&loaded)).unwrap();
    assert_eq!(lost.certificates[0].leaf(), loaded.certificates[0].leaf());
    // Others are no reason.
    assert!(load("a.example", &[], why, None).is_ok());
    assert!(load("a.test", &[], None, None).is_ok());
}

/// Whether a client that trusts only this certificate accepts the server as this host.
fn is_trusted(loaded: &Loaded, certificate: &PemFile, host: &str) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(certificate.text.as_bytes());
    roots.add(root.unwrap()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = host.to_owned().try_into().unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut server = rustls::ServerConnection::new(loaded.config.clone()).unwrap();
    while client.is_handshaking() {
        let (mut sent, mut answer) = (Vec::new(), Vec::new());
        client.write_tls(&mut sent).unwrap();
        server.read_tls(&mut &sent[..]).unwrap();
        server.process_new_packets().unwrap();
        server.write_tls(&mut answer).unwrap();
        client.read_tls(&mut &answer[..]).unwrap();
        if client.process_new_packets().is_err() {
            return false;
        }
    }
    true
}

#[test]
fn only_domains_that_no_certificate_is_for_are_served_without_tls() {
    let acquired = |domain: &str, files: Vec<PemFile>| Acquired {
        domain: domain.into(),
        files: files.into_iter().map(Ok).collect(),
        unstored: None,
    };
    let own = made("own.example", false);
    let wildcard = made("*.wild.example", false);
    let pairs = [&own, &wildcard].map(|file| Pair {
        certificate: file.clone(),
        key: file.clone(),
    });
    let files = TlsFiles {
        pairs: pairs.into(),
        sites: Vec::new(),
        client_ca: None,
        unrenewed: None,
        acquired: vec![
            acquired("expired.example", vec![made("expired.example", true)]),
            acquired("new.example", Vec::new()),
            acquired("own.example", Vec::new()),
            acquired("shop.wild.example", Vec::new()),
        ],
    };
    let hosts = Arc::new(ByHost::new([], None));
    let settings = Settings::default();
    let loaded = Loaded::new(&settings, &hosts, files, None, &Arc::default()).unwrap();
    let pending: Vec<_> = loaded.pending().collect();
    let expected = [
        "expired.example",
        "new.example",
        "own.example",
        "shop.wild.example",
    ];
    assert_eq!(pending, expected);
    assert_eq!(loaded.uncovered, ["new.example".to_owned()].into());
    for (certificate, host, is_for_it) in [
        (&own, "own.example", true),
        (&wildcard, "shop.wild.example", true),
        (&own, "new.example", false),
    ] {
        assert_eq!(is_trusted(&loaded, certificate, host), is_for_it, "{host}");
    }
}
