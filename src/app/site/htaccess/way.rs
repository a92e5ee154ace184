//! Merges what the `.htaccess` files on the way to a directory say, as Apache does, and evaluates
//! it for one file.

use std::cell::OnceCell;
use std::sync::Arc;

use super::access::{Access, Closed};
use super::facts::{Env, Facts};
use super::handler::{Handler, Php};
use super::link_options::Links;
use super::rewrite::Rules;
use super::rule::{Inherits, Options};
use super::rules::{Block, File, FixedEnv, Led};
use crate::app::site::opened::{Denial, LookupError};

/// What the `.htaccess` files from the document root down to a directory say together.
#[derive(Debug, Default)]
pub(crate) struct Way {
    levels: Vec<(Arc<str>, Arc<File>)>,
    rules: Option<Rules>,
    /// `RewriteEngine`.
    rewrites: bool,
    is_broken: bool,
    failed: Option<LookupError>,
    has_access: bool,
    has_handlers: bool,
    has_redirects: bool,
    restricts_links: bool,
    has_env: bool,
    has_fixed_env: bool,
    /// A section has directives of mod_rewrite.
    has_sections_of_rules: bool,
}

impl Way {
    pub(super) fn below(above: Option<&Way>, directory: &str, file: Arc<File>) -> Way {
        let mut levels = above.map_or_else(Vec::new, |above| above.levels.clone());
        levels.push((directory.into(), file));
        let blocks = || levels.iter().flat_map(|(_, file)| &file.blocks);
        let any = |has: fn(&Block) -> bool| blocks().any(has);
        Way {
            is_broken: levels.iter().any(|(_, file)| file.is_broken),
            failed: levels.iter().find_map(|(_, file)| file.failed),
            has_access: any(Block::limits_access),
            has_handlers: any(|b| !b.handlers.is_empty()),
            has_redirects: any(|b| !b.redirects.is_empty()),
            restricts_links: any(Block::restricts_links),
            has_env: any(|b| !b.env.is_empty()),
            has_fixed_env: any(|b| !b.fixed_env.is_empty()),
            has_sections_of_rules: any(|b| b.replaces_rules),
            rewrites: rewrites(&levels),
            rules: rules_of(&levels),
            levels,
        }
    }

    /// No file is on it at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// Why a file on the way could not be opened, if that may pass.
    pub(crate) fn failed(&self) -> Option<LookupError> {
        self.failed
    }

    /// A file on it cannot be read as Apache would.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    pub(super) fn ends_in(&self, file: &Arc<File>) -> bool {
        let last = self.levels.last();
        last.is_some_and(|(_, last)| Arc::ptr_eq(last, file))
    }

    /// What it says of a file of this name.
    pub(crate) fn about<'a>(&'a self, name: &'a str) -> About<'a> {
        About {
            way: self,
            name,
            blocks: OnceCell::new(),
        }
    }

    /// `DirectoryIndex`.
    pub(crate) fn index(&self) -> Option<&[String]> {
        let mut files = self.levels.iter().rev();
        files.find_map(|(_, file)| file.index.as_deref())
    }

    /// `FallbackResource`.
    pub(crate) fn fallback(&self) -> Option<&str> {
        let mut files = self.levels.iter().rev();
        files
            .find_map(|(_, file)| file.fallback.as_ref())?
            .as_deref()
    }
}

/// What a way says of files of one name.
pub(crate) struct About<'a> {
    pub(crate) way: &'a Way,
    name: &'a str,
    /// The blocks that are about it, in the order in which Apache merges them, and those of which
    /// that is not certain.
    blocks: OnceCell<(Vec<&'a Block>, Vec<&'a Block>)>,
}

impl<'a> About<'a> {
    fn blocks(&self) -> &(Vec<&'a Block>, Vec<&'a Block>) {
        self.blocks.get_or_init(|| {
            let files = || self.way.levels.iter().map(|(_, file)| file);
            let mut certain: Vec<_> = files().filter_map(|file| file.blocks.first()).collect();
            let mut uncertain = Vec::new();
            for block in files().flat_map(|file| file.blocks.iter().skip(1)) {
                match block.is_about(self.name) {
                    Some(true) => certain.push(block),
                    Some(false) => {}
                    None => uncertain.push(block),
                }
            }
            (certain, uncertain)
        })
    }

    /// The rules of mod_rewrite, where they are switched on.
    pub(crate) fn rules(&self) -> Option<&'a Rules> {
        let rules = self.way.rules.as_ref().filter(|_| self.way.rewrites)?;
        let is_replaced = self.way.has_sections_of_rules
            && !rules.holds_in_sections
            && self.blocks().0.iter().any(|block| block.replaces_rules);
        (!is_replaced).then_some(rules)
    }

    /// Whether all is denied, because rewriting is on and no symbolic link may be followed.
    pub(crate) fn forbids_rewriting(&self) -> bool {
        if !self.way.restricts_links {
            return false;
        }
        let (certain, uncertain) = self.blocks();
        let engine = certain.iter().rev().find_map(|block| block.engine);
        let mut links = Links::default();
        certain
            .iter()
            .flat_map(|block| &block.links)
            .for_each(|said| links.hear(said));
        let forbids = |block: &&Block| {
            let mut links = links;
            block.links.iter().for_each(|said| links.hear(said));
            !links.any()
        };
        engine.unwrap_or(self.way.rewrites) && (!links.any() || uncertain.iter().any(forbids))
    }

    /// Sets what `SetEnvIf` sets.
    pub(crate) fn set_env(&self, facts: &Facts<'_>, path: &str, env: &mut Env) {
        if !self.way.has_env {
            return;
        }
        let (certain, uncertain) = self.blocks();
        for set in certain.iter().flat_map(|block| &block.env) {
            set.apply(facts, path, env);
        }
        for set in uncertain.iter().flat_map(|block| &block.env) {
            set.apply_perhaps(facts, path, env);
        }
    }

    /// Sets what `SetEnv` and its like set, behind the rules.
    pub(crate) fn fix_env(&self, env: &mut Env) {
        if !self.way.has_fixed_env {
            return;
        }
        let (certain, uncertain) = self.blocks();
        let mut fixed = Env::default();
        for line in certain.iter().flat_map(|block| &block.fixed_env) {
            match line {
                FixedEnv::Set(name, value) => fixed.set(name, value.clone()),
                FixedEnv::Unset(name) => fixed.unset(name),
                FixedEnv::Pass(name) => fixed.set_unknown(name),
            }
        }
        for line in uncertain.iter().flat_map(|block| &block.fixed_env) {
            fixed.set_unknown(line.name());
        }
        env.overlay(fixed);
    }

    /// May this client have the file?
    pub(crate) fn check(&self, facts: &Facts<'_>, env: &Env) -> Result<(), Denial> {
        if !self.way.has_access {
            return Ok(());
        }
        let (certain, uncertain) = self.blocks();
        let mut access = Access::default();
        for block in certain {
            access.merge(&block.compat, &block.require, block.merging);
        }
        let check = |access: &Access<'_>| {
            access.check(facts, env).map_err(|closed| match closed {
                Closed::Denied => Denial::Closed,
                Closed::NeedsUser => Denial::NeedsUser,
            })
        };
        check(&access)?;
        for block in uncertain {
            let mut access = access.clone();
            access.merge(&block.compat, &block.require, block.merging);
            check(&access)?;
        }
        let closes = |block: &&Block| {
            block.closes
                || block.closes_by_rule && block.engine.unwrap_or(self.way.rewrites)
                || block.needs_tls && !(facts.origin)().https
        };
        match certain.iter().chain(uncertain).any(closes) {
            true => Err(Denial::Closed),
            false => Ok(()),
        }
    }

    /// Is a PHP file run? `forced` is what a rule of mod_rewrite has said.
    pub(crate) fn runs_php(&self, forced: Option<Handler>) -> bool {
        if forced.is_some_and(|forced| forced != Handler::Php) {
            return false;
        }
        if !self.way.has_handlers {
            return true;
        }
        let (certain, uncertain) = self.blocks();
        let php = heard(certain, self.name);
        php.runs()
            && uncertain.iter().all(|block| {
                let mut php = php.clone();
                for line in &block.handlers {
                    php.hear(line, self.name);
                }
                php.runs()
            })
    }

    /// Does Apache run a file, though Surus does not?
    pub(crate) fn is_source(&self, forced: Option<Handler>) -> bool {
        if forced.is_some_and(|forced| forced != Handler::Other) {
            return true;
        }
        if !self.way.has_handlers {
            return false;
        }
        let (certain, uncertain) = self.blocks();
        let all: Vec<_> = certain.iter().chain(uncertain).copied().collect();
        heard(&all, self.name).is_source()
    }

    /// Where `Redirect` and `RedirectMatch` lead from a path.
    pub(crate) fn redirect(&self, path: &str) -> Led {
        if !self.way.has_redirects {
            return Led::Nowhere;
        }
        let (certain, uncertain) = self.blocks();
        let leads = |led: &Led| *led != Led::Nowhere;
        // Those of deeper directories come first.
        let redirects = certain.iter().rev().flat_map(|block| &block.redirects);
        let found = redirects.map(|redirect| redirect.apply(path)).find(leads);
        found.unwrap_or_else(|| {
            let mut redirects = uncertain.iter().flat_map(|block| &block.redirects);
            match redirects.any(|redirect| leads(&redirect.apply(path))) {
                true => Led::Unknown,
                false => Led::Nowhere,
            }
        })
    }
}

fn heard(blocks: &[&Block], name: &str) -> Php {
    let mut php = Php::default();
    for line in blocks.iter().flat_map(|block| &block.handlers) {
        php.hear(line, name);
    }
    php
}

fn rewrites(levels: &[(Arc<str>, Arc<File>)]) -> bool {
    let mut files = levels
        .iter()
        .rev()
        .filter_map(|(_, file)| file.rewriting.as_ref());
    files.find_map(|rewriting| rewriting.engine) == Some(true)
}

/// The rules that hold in the deepest directory: its own replace those above, unless one of both
/// says that they are inherited.
fn rules_of(levels: &[(Arc<str>, Arc<File>)]) -> Option<Rules> {
    let mut above_options = Options::default();
    let mut rules: Option<Rules> = None;
    for (directory, file) in levels {
        let Some(rewriting) = &file.rewriting else {
            continue;
        };
        let options = rewriting.options.unwrap_or(above_options);
        let above = rules.take();
        let own = rewriting.rules.iter().cloned();
        let inherited = above.iter().flat_map(|above| above.rules.iter().cloned());
        rules = Some(Rules {
            rules: match options.taken_from(&above_options) {
                Inherits::No => own.collect(),
                Inherits::Behind => own.chain(inherited).collect(),
                Inherits::Before => inherited.chain(own).collect(),
            },
            holds_in_sections: options.taken_from(&options) != Inherits::No,
            directory: directory.clone(),
            base: rewriting.base.clone().or_else(|| {
                let above = above.as_ref().filter(|_| options.merges_base);
                above.and_then(|above| above.base.clone())
            }),
        });
        above_options = options;
    }
    rules
}
