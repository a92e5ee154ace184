//! Orders one certificate from one authority.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, Identifier,
    NewOrder, Order, OrderStatus, Problem, RetryPolicy,
};
use tracing::debug;

use super::link::{AttemptLink, ChallengeAnswer};
use super::schedule::LONGEST_WAIT;

/// How long an authority may take to validate, or to issue.
const POLLING: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(120));

/// A certificate with its chain, and its key, in PEM.
pub struct Issued {
    pub chain: String,
    pub key: String,
}

/// Gets a certificate for one domain by one kind of challenge. `replaces` is the certificate that
/// it renews.
pub async fn obtain(
    account: &Account,
    domain: &str,
    challenge: &ChallengeType,
    replaces: Option<CertificateIdentifier<'_>>,
    link: &AttemptLink,
) -> anyhow::Result<Issued> {
    let identifiers = [Identifier::Dns(domain.to_owned())];
    let new = || NewOrder::new(&identifiers);
    let order = match replaces {
        None => account.new_order(&new()).await,
        Some(id) => match account.new_order(&new().replaces(id)).await {
            // The authority has no such certificate any more, or it is replaced already.
            Err(Error::Api(problem)) if !OTHERS.map(Some).contains(&kind(&problem)) => {
                debug!(%problem, "the authority does not take the order as a renewal");
                account.new_order(&new()).await
            }
            Err(Error::Unsupported(_)) => account.new_order(&new()).await,
            order => order,
        },
    };
    let mut order = order.context("the order was rejected")?;
    let validated = validate(&mut order, challenge, link).await;
    if let Err(error) = validated {
        return Err(match reason(&mut order).await {
            Some(reason) => anyhow!("the validation by {} has failed: {reason}", name(challenge)),
            None => error,
        });
    }
    let key = order.finalize().await.context("the key was rejected")?;
    let chain = order.poll_certificate(&POLLING).await;
    Ok(Issued {
        chain: chain.context("no certificate was issued")?,
        key,
    })
}

/// Kinds of problems (RFC 8555, 6.7).
pub const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";
pub const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";
pub const RATE_LIMITED: &str = "urn:ietf:params:acme:error:rateLimited";

/// Problems that another order would meet as well.
const OTHERS: [&str; 3] = [NO_ACCOUNT, BAD_NONCE, RATE_LIMITED];

fn kind(problem: &Problem) -> Option<&str> {
    problem.r#type.as_deref()
}

/// Whether an error comes from a problem of this kind.
pub fn is_about(error: &anyhow::Error, problem: &str) -> bool {
    let is_one = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref() {
        Some(Error::Api(found)) => kind(found) == Some(problem),
        _ => false,
    };
    error.chain().any(is_one)
}

/// How long the authority asks to wait, if an order is not done within [`POLLING`].
pub fn wait_of(error: &anyhow::Error) -> Option<Duration> {
    let mut causes = error.chain();
    causes.find_map(|cause| match cause.downcast_ref() {
        Some(Error::Timeout(Some(next))) => Some(
            next.saturating_duration_since(Instant::now())
                .min(LONGEST_WAIT),
        ),
        _ => None,
    })
}

/// Shows the authority that this server controls the domain.
async fn validate(
    order: &mut Order,
    kind: &ChallengeType,
    link: &AttemptLink,
) -> anyhow::Result<()> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        match authorization.status {
            // From an earlier order.
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            status => bail!("the authorization is {status:?}"),
        }
        let domain = authorization.identifier().to_string();
        let challenge = authorization.challenge(kind.clone());
        let offered = || format!("the authority does not offer {}", name(kind));
        let mut challenge = challenge.with_context(offered)?;
        let key = challenge.key_authorization();
        let answer = ChallengeAnswer {
            domain,
            token: challenge.token.clone(),
            authorization: key.as_str().to_owned(),
            digest: key.digest().as_ref().to_vec(),
        };
        link.answer(answer).await?;
        challenge.set_ready().await?;
    }
    match order.poll_ready(&POLLING).await? {
        OrderStatus::Ready => Ok(()),
        status => bail!("the order is {status:?}"),
    }
}

fn name(kind: &ChallengeType) -> &'static str {
    match kind {
        ChallengeType::Http01 => "HTTP-01",
        ChallengeType::TlsAlpn01 => "TLS-ALPN-01",
        // No other one is requested.
        _ => "another challenge",
    }
}

/// The authority's reason for a failed validation.
async fn reason(order: &mut Order) -> Option<String> {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let state = authorization.refresh().await.ok()?;
        let errors = state.challenges.iter();
        let failed = errors
            .filter_map(|challenge| challenge.error.as_ref())
            .next();
        if let Some(error) = failed {
            let why = error.detail.as_deref().unwrap_or("no detail");
            return Some(why.to_owned());
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn wait_of_an_order_that_takes_long_is_known() {
        let later = Instant::now() + Duration::from_secs(900);
        let error = anyhow::Error::new(Error::Timeout(Some(later))).context("no certificate");
        let wait = wait_of(&error).unwrap();
        assert!(wait > Duration::from_secs(600) && wait <= Duration::from_secs(900));
        assert_eq!(wait_of(&anyhow::Error::new(Error::Timeout(None))), None);
        assert_eq!(wait_of(&anyhow!("another")), None);
    }
}
