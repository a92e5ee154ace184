//! Looks up what answers a request, promptly or, if that is not enough, on another thread.

use std::sync::Arc;
use std::time::Instant;

use http::Version;
use http::request::Parts;

use super::site::{Facts, Later, NormalizedPath, Pace, Resolution, Site, Steps, normalize};
use super::validate::RequestRejection;
use crate::event::Origin;

/// What a request is looked up with.
pub struct Look {
    pub now: Instant,
    /// What was found on another thread.
    pub found: Option<SlowlyFound>,
}

/// What a patient look-up found in a site.
pub struct SlowlyFound {
    pub(super) site: Arc<Site>,
    pub(super) resolution: Resolution,
}

/// A request whose look-up takes long.
pub struct SlowRequest {
    pub(super) parts: Parts,
    pub(super) site: Arc<Site>,
    pub(super) origin: Origin,
    pub(super) later: Later,
}

impl SlowRequest {
    /// Looks up what answers. Returns also the request's parts, to begin again.
    pub async fn find(self) -> Result<(Parts, SlowlyFound), RequestRejection> {
        let Self {
            parts,
            site,
            origin,
            later,
        } = self;
        let find = |site: &Site, (parts, origin): &(Parts, Origin), pace| {
            let origin = || origin.clone();
            match normalize(parts.uri.path()) {
                Ok(path) => look_up(site, parts, &path, Instant::now(), &origin, pace),
                Err(why) => Resolution::Malformed(why),
            }
        };
        let ((parts, _), resolution) = site.find_in_turn(later, (parts, origin), find).await?;
        Ok((parts, SlowlyFound { site, resolution }))
    }
}

pub(super) fn look_up(
    site: &Site,
    parts: &Parts,
    path: &NormalizedPath<'_>,
    now: Instant,
    origin: &dyn Fn() -> Origin,
    pace: Pace,
) -> Resolution {
    // From HTTP/2 on, each request names the host, which is not part of the line that rules see.
    let is_absolute = parts.uri.scheme().is_some() && parts.version < Version::HTTP_2;
    let whole = is_absolute.then(|| parts.uri.to_string());
    let target = parts.uri.path_and_query();
    let facts = Facts {
        method: &parts.method,
        target: whole
            .as_deref()
            .unwrap_or_else(|| target.map_or("/", |target| target.as_str())),
        query: parts.uri.query(),
        version: parts.version,
        headers: &parts.headers,
        origin,
        steps: Steps::of(pace),
        pace,
    };
    site.find_for(&facts, path, now)
}
