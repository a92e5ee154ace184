//! Bounds what `.htaccess` files can cost: the memory and work of reading them, and the work of
//! evaluating them for a request.
//!
//! Costs are estimated from the text and charged before they arise. They do not depend on the
//! machine or its load, so `surus check` finds what the server finds. A file or request above a
//! limit is denied.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::space::is_space;
use crate::budget::{Budget, HTACCESS, Reservation};

/// The memory of all files of a site. A typical pattern counts about 50 KiB.
pub(super) const MAX_MEMORY: usize = 128 << 20;

/// The memory of a site's files that other sites cannot use up.
const MIN_MEMORY: usize = 8 << 20;

/// The memory of one file, including patterns that turn out to be invalid. Compiling a pattern
/// takes time in proportion to what it counts, so this limits the time as well.
const MAX_FILE_MEMORY: usize = 64 << 20;

/// The directives and arguments of a file.
pub(super) const MAX_ITEMS: usize = 50_000;

/// The memory of an argument or a directive, for the largest of them.
const ITEM: usize = 256;

/// The memory of each byte of a directive's text. `$1$1` and `[E=a,E=a]` take most.
const TEXT: usize = 64;

/// The memory of the files that a site may have read at once, and in each second after that. Larger
/// files or more changes wait, because they would take the time of other sites.
const MAX_READ: usize = 512 << 20;
const READ_PER_SECOND: usize = 16 << 20;

/// The problems that are kept of a file.
pub(super) const MAX_PROBLEMS: usize = 100;

/// The longest text of a problem, in bytes.
pub(super) const MAX_PROBLEM: usize = 1024;

/// The steps of a request; a step takes at most some microseconds.
const MAX_STEPS: usize = 100_000;

/// The steps that are taken on a thread that serves other requests.
const PROMPT_STEPS: usize = 5000;

/// The steps of a look-up in the file system.
pub(in crate::app::site) const LOOKUP: usize = 20;

/// The bytes that are copied in one step.
const COPIED: usize = 256;

/// The memory that is left for the files of a site.
#[derive(Debug, Clone)]
pub struct SiteMemory(Arc<MemoryLeft>);

#[derive(Debug)]
struct MemoryLeft {
    of_site: AtomicUsize,
    /// What is left of [`MIN_MEMORY`].
    minimum: AtomicUsize,
    /// What all sites share.
    of_all: &'static Budget,
}

impl SiteMemory {
    pub fn new(bytes: usize) -> SiteMemory {
        SiteMemory::within(&HTACCESS, bytes)
    }

    pub(super) fn within(of_all: &'static Budget, bytes: usize) -> SiteMemory {
        SiteMemory(Arc::new(MemoryLeft {
            of_site: AtomicUsize::new(bytes),
            minimum: AtomicUsize::new(MIN_MEMORY),
            of_all,
        }))
    }
}

/// Takes bytes if so many are left.
fn take(left: &AtomicUsize, bytes: usize) -> bool {
    let less = |left: usize| left.checked_sub(bytes);
    let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    taken.is_ok()
}

impl Default for SiteMemory {
    fn default() -> SiteMemory {
        SiteMemory::new(MAX_MEMORY)
    }
}

/// The memory of one file, returned when the file is dropped.
#[derive(Debug)]
pub(super) struct Share {
    of: SiteMemory,
    bytes: usize,
    /// The same bytes, of what all sites share.
    of_all: Reservation,
    /// Those of them that are a part of the site's minimum.
    of_minimum: usize,
}

impl Share {
    pub(super) fn of(memory: &SiteMemory) -> Share {
        Share {
            of: memory.clone(),
            bytes: 0,
            of_all: Reservation::none(memory.0.of_all),
            of_minimum: 0,
        }
    }

    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let MemoryLeft {
            of_site,
            minimum,
            of_all,
        } = &*self.of.0;
        if !take(of_site, bytes) {
            return false;
        }
        self.bytes += bytes;
        if self.of_all.try_grow(bytes as u64) {
            return true;
        }
        let has_minimum = take(minimum, bytes);
        if has_minimum {
            self.of_minimum += bytes;
            self.of_all.join(of_all.take(bytes as u64));
        }
        has_minimum
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let left = &self.of.0;
        left.of_site.fetch_add(self.bytes, Ordering::Relaxed);
        left.minimum.fetch_add(self.of_minimum, Ordering::Relaxed);
    }
}

/// A limit that a file exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Excess {
    Items,
    FileMemory,
    /// The other files of the site, or of all sites, leave too little.
    SiteMemory,
}

impl Excess {
    pub(super) fn why(self) -> String {
        match self {
            Excess::Items => format!("the file has more than {MAX_ITEMS} directives and arguments"),
            Excess::FileMemory => format!(
                "the file would take more than {} MiB of memory",
                MAX_FILE_MEMORY >> 20
            ),
            Excess::SiteMemory => format!(
                "all .htaccess files of the site would take more than {} MiB of memory, or \
                 those of all sites more than {} MiB",
                MAX_MEMORY >> 20,
                HTACCESS.limit() >> 20
            ),
        }
    }
}

/// What reading one file may still cost.
#[derive(Debug)]
pub(super) struct ReadingBudget {
    share: RefCell<Share>,
    items: Cell<usize>,
    /// The first limit that the file exceeds.
    excess: Cell<Option<Excess>>,
}

impl ReadingBudget {
    pub(super) fn of(memory: &SiteMemory) -> ReadingBudget {
        ReadingBudget {
            share: RefCell::new(Share::of(memory)),
            items: Cell::new(0),
            excess: Cell::new(None),
        }
    }

    /// Charges a directive, before its arguments are parsed.
    pub(super) fn directive(&self, text: &str) -> Result<(), Excess> {
        let arguments = most_words(text);
        let items = self.items.get() + 1 + arguments;
        self.items.set(items);
        if items > MAX_ITEMS {
            return Err(self.exceed(Excess::Items));
        }
        self.memory((1 + arguments) * ITEM + text.len() * TEXT)
    }

    /// Charges memory, before it is used.
    pub(super) fn memory(&self, bytes: usize) -> Result<(), Excess> {
        if let Some(excess) = self.excess.get() {
            return Err(excess);
        }
        let mut share = self.share.borrow_mut();
        if share.bytes.saturating_add(bytes) > MAX_FILE_MEMORY {
            return Err(self.exceed(Excess::FileMemory));
        }
        match share.grow(bytes) {
            true => Ok(()),
            false => Err(self.exceed(Excess::SiteMemory)),
        }
    }

    fn exceed(&self, excess: Excess) -> Excess {
        let first = self.excess.get().unwrap_or(excess);
        self.excess.set(Some(first));
        first
    }

    pub(super) fn excess(&self) -> Option<Excess> {
        self.excess.get()
    }

    /// The bytes that were charged.
    pub(super) fn spent(&self) -> usize {
        self.share.borrow().bytes
    }

    pub(super) fn into_share(self) -> Share {
        self.share.into_inner()
    }
}

impl Default for ReadingBudget {
    fn default() -> ReadingBudget {
        ReadingBudget::of(&SiteMemory::default())
    }
}

/// The reading that a site may cause.
#[derive(Debug)]
pub(in crate::app::site) struct ReadingRate {
    left: usize,
    at: Option<Instant>,
}

impl ReadingRate {
    pub(super) fn new(left: usize) -> ReadingRate {
        ReadingRate { left, at: None }
    }

    /// Whether another file may be read now.
    pub(super) fn allows(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(*self.at.get_or_insert(now));
        let more = passed.as_millis() as usize * (READ_PER_SECOND / 1000);
        if more > 0 {
            self.at = Some(now);
            self.left = self.left.saturating_add(more).min(MAX_READ);
        }
        self.left > 0
    }

    /// Charges a file that was read. The last one may take more than is left.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
    }
}

impl Default for ReadingRate {
    fn default() -> ReadingRate {
        ReadingRate::new(MAX_READ)
    }
}

/// At least the number of words of a text, quoted ones included.
fn most_words(text: &str) -> usize {
    let quotes = text.bytes().filter(|byte| matches!(byte, b'"' | b'\''));
    let words = text.split(is_space).filter(|word| !word.is_empty());
    words.count() + quotes.count()
}

/// How long a look-up may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Other requests wait for its thread.
    Prompt,
    /// It may wait for the disk, and take as many steps as a request may.
    Patient,
}

/// The steps that evaluating `.htaccess` files for one request may still take.
#[derive(Debug)]
pub struct Steps(Cell<usize>);

impl Default for Steps {
    fn default() -> Steps {
        Steps(Cell::new(MAX_STEPS))
    }
}

impl Steps {
    pub fn of(pace: Pace) -> Steps {
        Steps(Cell::new(match pace {
            Pace::Prompt => PROMPT_STEPS,
            Pace::Patient => MAX_STEPS,
        }))
    }

    /// Charges steps before they are taken. False if too few are left; then none are.
    pub(in crate::app::site) fn take(&self, steps: usize) -> bool {
        let left = self.0.get().saturating_sub(steps);
        self.0.set(left);
        left > 0
    }

    /// Charges an evaluation that copies this many bytes.
    pub(super) fn take_copy(&self, bytes: usize) -> bool {
        self.take(1 + bytes / COPIED)
    }

    /// Whether the evaluation was broken off, so that its result means nothing.
    pub(in crate::app::site) fn are_used_up(&self) -> bool {
        self.0.get() == 0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn dropped_file_returns_its_memory() {
        let memory = SiteMemory::new(10);
        let budget = ReadingBudget::of(&memory);
        budget.memory(7).unwrap();
        let other = ReadingBudget::of(&memory);
        assert_eq!(other.memory(4), Err(Excess::SiteMemory));
        // Another reading has a state of its own.
        assert_eq!((budget.memory(1), budget.excess()), (Ok(()), None));
        assert_eq!(other.memory(1), Err(Excess::SiteMemory));
        drop((budget.into_share(), other));
        assert_eq!(ReadingBudget::of(&memory).memory(10), Ok(()));
    }

    #[test]
    fn site_has_a_minimum_that_other_sites_cannot_use_up() {
        static ALL: Budget = Budget::new("test", 100);
        let other = SiteMemory::within(&ALL, MAX_MEMORY);
        let mut most = Share::of(&other);
        assert!(most.grow(100));
        let site = SiteMemory::within(&ALL, MAX_MEMORY);
        let mut share = Share::of(&site);
        assert!(share.grow(MIN_MEMORY) && !share.grow(1));
        assert_eq!(ALL.used(), 100 + MIN_MEMORY as u64);
        drop(share);
        drop(most);
        assert_eq!(ALL.used(), 0);
        let mut share = Share::of(&site);
        // The common memory is taken first.
        assert!(share.grow(100) && share.grow(MIN_MEMORY));
    }

    #[test]
    fn words_are_never_more_than_counted() {
        for text in ["", " a  b ", "\"a\"\"b\"''c", "a\"b", "\x0ba\x0bb"] {
            let words = super::super::parse::words(text);
            assert!(words.len() <= most_words(text), "{text:?}");
        }
    }

    #[test]
    fn used_up_steps_stay_used_up() {
        let steps = Steps::default();
        assert!(steps.take(MAX_STEPS - 1) && !steps.are_used_up());
        assert!(!steps.take(1) && !steps.take(0) && steps.are_used_up());
    }
}
