//! The front end's answers when an authority checks that it controls a host: by HTTP-01 (RFC 8555,
//! 8.3) and TLS-ALPN-01 (RFC 8737). Also lists the hosts that have no certificate yet.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, ensure};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::CertifiedKey;

use super::link::ChallengeAnswer;

/// The protocol of TLS-ALPN-01.
pub const PROTOCOL: &[u8] = b"acme-tls/1";

const PATH: &str = "/.well-known/acme-challenge/";

/// One attempt needs one answer at a time.
const MAX_ANSWERS: usize = 16;

#[derive(Debug, Default)]
pub struct ChallengeAnswers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By token.
    texts: HashMap<String, String>,
    /// By host name.
    certificates: HashMap<String, Arc<CertifiedKey>>,
    /// The configured hosts that no certificate is for.
    pending: BTreeSet<String>,
}

impl ChallengeAnswers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives this answer from now on.
    pub fn give(&self, answer: &ChallengeAnswer, provider: &CryptoProvider) -> anyhow::Result<()> {
        let certificate = challenge_certificate(answer, provider)?;
        let mut state = self.lock();
        ensure!(state.texts.len() < MAX_ANSWERS, "too many answers");
        let (token, text) = (&answer.token, &answer.authorization);
        state.texts.insert(token.clone(), text.clone());
        let domain = answer.domain.clone();
        state.certificates.insert(domain, Arc::new(certificate));
        Ok(())
    }

    /// Gives no answer any more.
    pub fn withdraw(&self) {
        let mut state = self.lock();
        state.texts.clear();
        state.certificates.clear();
    }

    /// The body for a request of HTTP-01. None if the path is another, or the token unknown: the
    /// application may have an ACME client of its own.
    pub fn text(&self, path: &str) -> Option<String> {
        let token = path.strip_prefix(PATH)?;
        self.lock().texts.get(token).cloned()
    }

    /// The certificate for a handshake of TLS-ALPN-01.
    pub fn certificate(&self, host: &str) -> Option<Arc<CertifiedKey>> {
        let host = host.to_ascii_lowercase();
        self.lock().certificates.get(&host).cloned()
    }

    /// Sets the hosts that no certificate is for.
    pub fn set_pending(&self, hosts: BTreeSet<String>) {
        self.lock().pending = hosts;
    }

    /// Whether a client cannot trust this host over TLS yet.
    pub fn is_pending(&self, host: &str) -> bool {
        let state = self.lock();
        !state.pending.is_empty() && state.pending.contains(&host.to_ascii_lowercase())
    }
}

/// The certificate that TLS-ALPN-01 asks for.
fn challenge_certificate(
    answer: &ChallengeAnswer,
    provider: &CryptoProvider,
) -> anyhow::Result<CertifiedKey> {
    // rcgen panics otherwise.
    ensure!(
        answer.digest.len() == 32,
        "the digest is not one of SHA-256"
    );
    let mut params = CertificateParams::new([answer.domain.clone()])?;
    let extension = CustomExtension::new_acme_identifier(&answer.digest);
    params.custom_extensions.push(extension);
    self_signed(params, provider)
}

/// A certificate for hosts that have none yet.
pub fn placeholder(hosts: &[String], provider: &CryptoProvider) -> anyhow::Result<CertifiedKey> {
    self_signed(CertificateParams::new(hosts)?, provider)
}

fn self_signed(
    params: CertificateParams,
    provider: &CryptoProvider,
) -> anyhow::Result<CertifiedKey> {
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::try_from(key.serialize_der());
    let key = key.ok().context("rcgen made a key of an unknown kind")?;
    let chain = vec![certificate.der().clone()];
    // Not `from_der`, which rejects the extension of TLS-ALPN-01.
    Ok(CertifiedKey::new(
        chain,
        provider.key_provider.load_private_key(key)?,
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rustls::crypto::ring;

    use super::*;

    #[test]
    fn answers_are_given_until_withdrawn() {
        let answers = ChallengeAnswers::default();
        let mut answer = ChallengeAnswer {
            domain: "example.org".into(),
            token: "abc".into(),
            authorization: "abc.def".into(),
            digest: vec![1; 32],
        };
        let provider = ring::default_provider();
        answers.give(&answer, &provider).unwrap();
        let text = |path| answers.text(path);
        assert_eq!(text("/.well-known/acme-challenge/abc").unwrap(), "abc.def");
        for other in [
            "/.well-known/acme-challenge/",
            "/abc",
            "/.well-known/acme-challenge/x",
        ] {
            assert_eq!(text(other), None, "{other}");
        }
        assert!(answers.certificate("Example.ORG").is_some());
        assert!(answers.certificate("example.com").is_none());
        answer.digest.pop();
        assert!(answers.give(&answer, &provider).is_err());
        answers.withdraw();
        assert_eq!(text("/.well-known/acme-challenge/abc"), None);
        assert!(answers.certificate("example.org").is_none());
    }

    #[test]
    fn host_without_certificate_is_pending_whatever_its_case() {
        let answers = ChallengeAnswers::default();
        answers.set_pending(BTreeSet::from(["example.org".to_string()]));
        assert!(answers.is_pending("Example.org"));
        assert!(!answers.is_pending("www.example.org"));
    }
}
