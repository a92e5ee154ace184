//! Learns which pages anonymous clients of a pool ask for most, so that its next boots can be
//! warmed up by them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::ensure;
use http::{Method, StatusCode, Uri, header};
use tokio::sync::Notify;

use crate::event::{Event, Response};
use crate::observe::status::{LeftOut, LeftOutReason};

/// The most pages that warm up a boot.
pub const MOST_PAGES: usize = 8;

/// The longest URL of a page.
const LONGEST: usize = 512;

/// How many answers are counted before the pages are chosen, each time.
const ROUNDS: [u32; 3] = [200, 2_000, 20_000];

/// A page is chosen if at least one answer in this many is its own.
const SHARE: u32 = 50;

/// The fewest answers of a page that is chosen.
const FEWEST: u32 = 20;

/// The fewest client addresses of a page that is chosen. So a link that only one visitor has (to
/// reset a password) is not chosen, even if programs fetch it, too.
const ADDRESSES: usize = 3;

/// The client address of warm-up requests and comparisons. An address for documentation (RFC 5737),
/// because applications trust 127.0.0.1.
pub const NO_CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Pages whose answers are counted at the same time.
const COUNTED: usize = 512;

/// How often a page is tried that fails for now. Then it waits for the next start or reload.
pub const TRIES: u32 = 5;

/// Why no page has warmed up a boot although enough answers were counted, and what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NothingLearned {
    pub reason: &'static str,
    pub remedy: &'static str,
}

const FEW_ADDRESSES: NothingLearned = NothingLearned {
    reason: "pages with enough answers were asked for from fewer than three addresses",
    remedy: "behind a proxy, name it in http.trusted_proxies; otherwise name pages in \
             engine.warmup",
};

const FEW_ANSWERS: NothingLearned = NothingLearned {
    reason: "no page has 20 answers that are one in fifty of all",
    remedy: "name pages in engine.warmup",
};

/// The first line of [`Learned::text`].
const FORMAT: &str = "surus pages 1";

/// The host of learned pages if the configuration names none.
pub const NO_HOST: &str = "localhost";

/// What a pool has learned. Its boots and the front end share it.
#[derive(Debug, Default)]
pub struct Learned {
    /// The hosts that the configuration names, without ports. Pages are requested from no other,
    /// because clients choose the host that they send.
    hosts: Vec<String>,
    counts: AtomicBool,
    state: Mutex<State>,
    due: Notify,
}

#[derive(Debug, Default)]
struct State {
    answers: u32,
    by_page: HashMap<String, PageAnswers>,
    /// The first addresses of all answers since learning began, as [`network`] has them.
    addresses: Vec<IpAddr>,
    rounds: usize,
    /// Which pages warm up the next boot, as absolute URLs. There are some while the learner boots.
    pages: Vec<String>,
    /// Which pages warm up the serving boot: a comparison of answers has proven them for its files.
    proven: Vec<String>,
    /// Pages that have warmed up other boots.
    proposed: Option<Vec<String>>,
    left_out: Vec<LeftOut>,
    failing: Vec<FailingPage>,
    /// Whether [`Learned::chosen`] has said why nothing was learned.
    has_reported: bool,
}

/// A page that fails for now, as a rate limiter or an outage makes it.
#[derive(Debug)]
struct FailingPage {
    page: String,
    why: String,
    tries: u32,
}

/// The answers of a page.
#[derive(Debug, Default)]
struct PageAnswers {
    count: u32,
    /// The first addresses, as [`network`] has them.
    addresses: Vec<IpAddr>,
}

impl PageAnswers {
    fn add(&mut self, client: Option<IpAddr>) {
        self.count += 1;
        add_address(&mut self.addresses, client);
    }

    /// Whether the page is one for all, of `answers` that were counted.
    fn is_enough(&self, answers: u32) -> bool {
        self.is_frequent(answers) && self.addresses.len() >= ADDRESSES
    }

    fn is_frequent(&self, answers: u32) -> bool {
        self.count >= FEWEST && u64::from(self.count) * u64::from(SHARE) >= answers.into()
    }
}

impl Learned {
    /// Learns pages of these hosts. The first is that of requests for other hosts.
    pub fn of_hosts(hosts: Vec<String>) -> Learned {
        Learned {
            hosts,
            ..Learned::default()
        }
    }

    /// Counts answers from now on.
    pub fn start(&self) {
        self.counts.store(true, Ordering::Relaxed);
    }

    /// Whether answers are counted.
    pub fn is_counting(&self) -> bool {
        self.counts.load(Ordering::Relaxed)
    }

    /// Counts an answer, if it was the same for every client, as far as one can see.
    pub fn answered(&self, event: &Event, response: &Response) {
        if !is_for_all(event, response) {
            return;
        }
        let client = event.origin.client.as_ref().map(|client| client.ip());
        if client == Some(NO_CLIENT.into()) {
            return; // Surus compares answers.
        }
        let Some(page) = self.page(event) else { return };
        let mut state = self.lock();
        state.answers += 1;
        add_address(&mut state.addresses, client);
        if state.by_page.len() >= COUNTED && !state.by_page.contains_key(&page) {
            state.by_page.retain(|_, answers| answers.count > 1);
        }
        let has_room = state.by_page.len() < COUNTED;
        match state.by_page.entry(page) {
            Entry::Occupied(mut known) => known.get_mut().add(client),
            Entry::Vacant(new) if has_room => new.insert(PageAnswers::default()).add(client),
            Entry::Vacant(_) => {}
        }
        if ROUNDS.get(state.rounds) == Some(&state.answers) {
            self.due.notify_one();
        }
    }

    /// Returns the pages to try next: those that were [proposed](Self::propose), or those that were
    /// asked for most, the first of them first, when enough answers have been counted again. Says
    /// once why there are none: after the last round, or earlier if all clients have too few
    /// addresses.
    pub async fn chosen(&self) -> Result<Vec<String>, NothingLearned> {
        loop {
            self.due.notified().await;
            let mut state = self.lock();
            if let Some(pages) = state.proposed.take() {
                // Enough answers may have been counted meanwhile.
                self.due.notify_one();
                return Ok(pages);
            }
            if state.answers >= ROUNDS.get(state.rounds).copied().unwrap_or(u32::MAX) {
                let (answers, counts) = (state.answers, std::mem::take(&mut state.by_page));
                state.answers = 0;
                state.rounds += 1;
                let is_last = state.rounds == ROUNDS.len();
                self.counts.store(!is_last, Ordering::Relaxed);
                let why = nothing_learned(&counts, answers, &state.addresses, is_last);
                let pages = most(counts, answers);
                let is_known = !pages.is_empty() || !state.proven.is_empty() || state.has_reported;
                return match why {
                    Some(why) if !is_known => {
                        state.has_reported = true;
                        Err(why)
                    }
                    _ => Ok(pages),
                };
            }
        }
    }

    /// Proposes pages that have warmed up a boot of another time or version, or that could not be
    /// compared, in addition to those proposed before.
    pub fn propose(&self, mut pages: Vec<String>) {
        // The configuration may have named other hosts.
        pages.retain(|page| self.has_own_host(page));
        if pages.is_empty() {
            return;
        }
        let mut state = self.lock();
        let proposed = state.proposed.get_or_insert_default();
        for page in pages {
            if !proposed.contains(&page) && proposed.len() < MOST_PAGES {
                proposed.push(page);
            }
        }
        self.due.notify_one();
    }

    /// Proposes the pages that are proven for the last boot, because the next one may have other
    /// files.
    pub fn prove_again(&self) {
        let pages = std::mem::take(&mut self.lock().proven);
        self.propose(pages);
    }

    /// The pages that are proposed, until they are tried.
    pub fn proposed(&self) -> Vec<String> {
        self.lock().proposed.clone().unwrap_or_default()
    }

    /// Begins to learn the pages of another version of the application, for which pages that were
    /// left out may be fine.
    pub fn start_again(&self) {
        let mut state = self.lock();
        state.left_out.clear();
        state.failing.clear();
        state.by_page.clear();
        state.addresses.clear();
        (state.answers, state.rounds) = (0, 0);
        drop(state);
        self.start();
    }

    /// Which pages warm up the next boot.
    pub fn pages(&self) -> Vec<String> {
        self.lock().pages.clone()
    }

    pub fn set_pages(&self, pages: Vec<String>) {
        self.lock().pages = pages;
    }

    /// Which pages are not used, and why.
    pub fn left_out(&self) -> Vec<LeftOut> {
        let state = self.lock();
        let failing = state.failing.iter().map(|failing| {
            let (why, tries) = (&failing.why, failing.tries);
            LeftOut {
                page: failing.page.clone(),
                reason: LeftOutReason::Temporary,
                why: format!("{why}; tried {tries} of {TRIES} times"),
            }
        });
        state.left_out.iter().cloned().chain(failing).collect()
    }

    /// Whether a page is not tried again.
    pub fn is_left_out(&self, page: &str) -> bool {
        let is_known = self.lock().left_out.iter().any(|it| it.page == page);
        is_known || self.tries(page) >= TRIES
    }

    /// How often a page has failed that fails for now.
    pub fn tries(&self, page: &str) -> u32 {
        let state = self.lock();
        let failing = state.failing.iter().find(|it| it.page == page);
        failing.map_or(0, |failing| failing.tries)
    }

    /// Notes that a page fails for now. Returns how often it has failed.
    pub fn failed(&self, page: &str, why: String) -> u32 {
        let mut state = self.lock();
        if let Some(failing) = state.failing.iter_mut().find(|it| it.page == page) {
            failing.why = why;
            failing.tries += 1;
            return failing.tries;
        }
        // Enough for all rounds.
        if state.failing.len() < MOST_PAGES * ROUNDS.len() {
            let page = page.to_owned();
            let tries = 1;
            state.failing.push(FailingPage { page, why, tries });
        }
        1
    }

    /// Notes which pages warm up the serving boot, after a comparison of answers.
    pub fn succeeded(&self, pages: &[String]) {
        let mut state = self.lock();
        (state.failing).retain(|failing| !pages.contains(&failing.page));
        state.proven = pages.to_vec();
    }

    /// The pages that fail for now. The next start tries them, too.
    pub fn failing(&self) -> Vec<String> {
        let state = self.lock();
        state.failing.iter().map(|it| it.page.clone()).collect()
    }

    pub fn leave_out(&self, page: LeftOut) {
        let mut state = self.lock();
        // Enough for all rounds.
        if state.left_out.len() < MOST_PAGES * ROUNDS.len() {
            state.left_out.push(page);
        }
    }

    /// The URL of a request without a query, at a host of the configuration.
    fn page(&self, event: &Event) -> Option<String> {
        let uri = event.request.uri();
        let requested = match uri.authority() {
            Some(host) => host.host(),
            None => event.request.headers().get(header::HOST)?.to_str().ok()?,
        };
        let name = requested
            .rsplit_once(':')
            .map_or(requested, |(name, _)| name);
        let named = self.hosts.iter().find(|it| it.eq_ignore_ascii_case(name));
        let host = named.or(self.hosts.first()).map_or(NO_HOST, String::as_str);
        let scheme = if event.origin.https { "https" } else { "http" };
        let page = format!("{scheme}://{host}{}", uri.path());
        is_page(&page).then_some(page)
    }

    /// Reads what [`text`] has written, perhaps in a process that an attacker controls. Only pages
    /// at hosts of the configuration are valid.
    pub fn parse(&self, text: &str) -> anyhow::Result<Vec<String>> {
        let pages = parse(text)?;
        for page in &pages {
            ensure!(self.has_own_host(page), "a page of another host: {page:?}");
        }
        Ok(pages)
    }

    /// Whether a page is at a host of the configuration, or at none.
    pub fn has_own_host(&self, page: &str) -> bool {
        let uri = page.parse::<Uri>();
        let host = uri.as_ref().ok().and_then(Uri::authority);
        host.is_some_and(|host| match self.hosts.is_empty() {
            true => host.as_str() == NO_HOST,
            false => self.hosts.iter().any(|own| own == host.as_str()),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pages as text, for a file.
pub fn text(pages: &[String]) -> String {
    format!("{FORMAT}\n{}\n", pages.join("\n"))
}

/// Reads what [`text`] has written. The text is not trusted.
pub fn parse(text: &str) -> anyhow::Result<Vec<String>> {
    let mut lines = text.lines();
    ensure!(lines.next() == Some(FORMAT), "not a list of pages");
    let pages: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    ensure!(pages.len() <= MOST_PAGES, "too many pages");
    for page in &pages {
        ensure!(is_page(page), "not the URL of a page: {page:?}");
    }
    Ok(pages.into_iter().map(str::to_owned).collect())
}

/// Whether a page's URL is valid: absolute, without a query and without a user.
fn is_page(url: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic();
    url.len() <= LONGEST
        && url.bytes().all(is_plain)
        && url.parse::<Uri>().is_ok_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.query().is_none()
                && uri
                    .authority()
                    .is_some_and(|host| !host.as_str().contains('@'))
        })
}

/// Whether the request has neither cookies nor credentials, and the response may be stored.
fn is_for_all(event: &Event, response: &Response) -> bool {
    let request = &event.request;
    let is_secret = |value: &http::HeaderValue| {
        let value = value.as_bytes().to_ascii_lowercase();
        value.windows(8).any(|word| word == b"no-store")
    };
    request.method() == Method::GET
        && response.status() == StatusCode::OK
        && request.uri().query().is_none()
        && request.body().is_empty()
        && !request.headers().contains_key(header::COOKIE)
        && !request.headers().contains_key(header::AUTHORIZATION)
        && !(response.headers().get_all(header::CACHE_CONTROL).iter()).any(is_secret)
}

/// The part of an address that counts: an IPv6 client usually has a whole network.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

/// Adds the address of a client, if it is new and counts.
fn add_address(addresses: &mut Vec<IpAddr>, client: Option<IpAddr>) {
    if let Some(address) = client.map(network)
        && addresses.len() < ADDRESSES
        && !addresses.contains(&address)
    {
        addresses.push(address);
    }
}

/// Why none of these pages is chosen. None if the next round may choose one: `addresses`, those of
/// all answers, are enough, or no page is frequent yet.
fn nothing_learned(
    counts: &HashMap<String, PageAnswers>,
    answers: u32,
    addresses: &[IpAddr],
    is_last: bool,
) -> Option<NothingLearned> {
    match counts.values().any(|of| of.is_frequent(answers)) {
        true => (is_last || addresses.len() < ADDRESSES).then_some(FEW_ADDRESSES),
        false => is_last.then_some(FEW_ANSWERS),
    }
}

/// The pages with the most answers, if these are enough.
fn most(counts: HashMap<String, PageAnswers>, answers: u32) -> Vec<String> {
    let enough = counts.into_iter().filter(|(_, of)| of.is_enough(answers));
    let mut pages: Vec<_> = enough.map(|(page, of)| (page, of.count)).collect();
    pages.sort_by(|(one, ones), (other, others)| others.cmp(ones).then(one.cmp(other)));
    pages.truncate(MOST_PAGES);
    pages.into_iter().map(|(page, _)| page).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
