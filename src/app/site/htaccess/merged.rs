//! Merges the `.htaccess` files on the way to a directory, as Apache does, and evaluates them for
//! one file.

use std::cell::OnceCell;
use std::ptr;
use std::sync::{Arc, LazyLock};

use super::access::{AccessDenied, FileAccess};
use super::cost::{Share, SiteMemory, Steps};
use super::facts::{Env, Facts};
use super::handler::{FileHandler, NO_TYPE, PhpHandlers, Switch, sent_type};
use super::link_options::AllowedLinks;
use super::rewrite::Rules;
use super::rule::{Inherits, Options, RewriteRule, Rewriting};
use super::rules::{Block, FixedEnv, HtaccessFile, Redirect, RedirectOutcome};
use crate::app::site::opened::{Denial, LookupError};

/// The merged `.htaccess` files from the document root down to a directory.
#[derive(Debug, Default)]
pub(crate) struct MergedRules {
    levels: Vec<(Arc<str>, Arc<HtaccessFile>)>,
    rules: Option<Arc<Rules>>,
    /// `RewriteOptions`.
    options: Options,
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
    /// Whether a section has mod_rewrite directives.
    has_sections_of_rules: bool,
    /// The share of the site's memory that the list of rules holds. None if there was too little.
    memory: Option<Share>,
}

impl MergedRules {
    pub(super) fn below(
        above: Option<&MergedRules>,
        directory: &str,
        file: Arc<HtaccessFile>,
        memory: &SiteMemory,
    ) -> MergedRules {
        static NOTHING: LazyLock<MergedRules> = LazyLock::new(MergedRules::default);
        let above = above.unwrap_or(&NOTHING);
        let directory = Arc::from(directory);
        let any = |has: fn(&Block) -> bool| file.blocks.iter().any(has);
        // Before the list is made.
        let mut share = Share::of(memory);
        let rewriting = file.rewriting.as_ref();
        let rules = rewriting.map_or(0, |own| own.rules.len() + above.rule_count());
        let has_room = share.grow(rules * size_of::<Arc<RewriteRule>>());
        let (rules, options) = match rewriting {
            Some(rewriting) if has_room => rules_of(rewriting, &directory, above),
            _ => (above.rules.clone(), above.options),
        };
        MergedRules {
            is_broken: !has_room || above.is_broken || file.is_broken,
            failed: above.failed.or(file.failed),
            has_access: above.has_access || any(Block::limits_access),
            has_handlers: above.has_handlers || any(|b| !b.handlers.is_empty()),
            has_redirects: above.has_redirects || any(|b| !b.redirects.is_empty()),
            restricts_links: above.restricts_links || any(Block::restricts_links),
            has_env: above.has_env || any(|b| !b.env.is_empty()),
            has_fixed_env: above.has_fixed_env || any(|b| !b.fixed_env.is_empty()),
            has_sections_of_rules: above.has_sections_of_rules || any(|b| b.replaces_rules),
            rewrites: rewriting
                .and_then(|own| own.engine)
                .unwrap_or(above.rewrites),
            rules,
            options,
            memory: has_room.then_some(share),
            levels: above
                .levels
                .iter()
                .cloned()
                .chain([(directory, file)])
                .collect(),
        }
    }

    /// What merging a file takes: about the number of levels, sections and rules that are copied or
    /// looked at.
    pub(super) fn work_below(above: Option<&MergedRules>, file: &HtaccessFile) -> usize {
        let (levels, rules) =
            above.map_or((0, 0), |above| (above.levels.len(), above.rule_count()));
        let own = file.rewriting.as_ref().map(|own| own.rules.len());
        levels + file.blocks.len() + own.map_or(0, |own| own + rules)
    }

    fn rule_count(&self) -> usize {
        self.rules.as_ref().map_or(0, |rules| rules.rules.len())
    }

    /// Whether there is no file on the way.
    pub(crate) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// Why a file on the way could not be opened, if the reason may be temporary.
    pub(crate) fn failed(&self) -> Option<LookupError> {
        self.failed
    }

    /// Whether Apache would reject a file on the way or could not read it.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    pub(super) fn ends_in(&self, file: &Arc<HtaccessFile>) -> bool {
        let last = self.levels.last();
        // Without memory, it must be merged again.
        self.memory.is_some() && last.is_some_and(|(_, last)| Arc::ptr_eq(last, file))
    }

    /// All blocks, in Apache's merge order.
    fn blocks(&self) -> impl Iterator<Item = &Block> {
        let files = self.levels.iter();
        let outside = files.clone().filter_map(|(_, file)| file.blocks.first());
        outside.chain(files.flat_map(|(_, file)| file.blocks.iter().skip(1)))
    }

    /// The directives for a file of this name.
    pub(crate) fn for_file<'a>(&'a self, name: &'a str, steps: &'a Steps) -> FileRules<'a> {
        FileRules {
            merged: self,
            name,
            steps,
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

/// The directives of a way for files of one name.
pub(crate) struct FileRules<'a> {
    pub(crate) merged: &'a MergedRules,
    name: &'a str,
    steps: &'a Steps,
    /// The blocks that apply, in Apache's merge order, and the blocks that may apply.
    blocks: OnceCell<(Vec<&'a Block>, Vec<&'a Block>)>,
}

impl<'a> FileRules<'a> {
    fn blocks(&self) -> &(Vec<&'a Block>, Vec<&'a Block>) {
        self.blocks.get_or_init(|| {
            let files = || self.merged.levels.iter().map(|(_, file)| file);
            let mut certain: Vec<_> = files().filter_map(|file| file.blocks.first()).collect();
            let mut uncertain = Vec::new();
            for block in files().flat_map(|file| file.blocks.iter().skip(1)) {
                if !self.steps.take(1) {
                    break;
                }
                match block.is_about(self.name, self.steps) {
                    Some(true) => certain.push(block),
                    Some(false) => {}
                    None => uncertain.push(block),
                }
            }
            (certain, uncertain)
        })
    }

    /// The rules of mod_rewrite, if rewriting is on.
    pub(crate) fn rules(&self) -> Option<&'a Rules> {
        let rules = self.merged.rules.as_deref();
        let rules = rules.filter(|_| self.rewrites())?;
        let is_replaced = self.merged.has_sections_of_rules
            && !rules.holds_in_sections
            && self.blocks().0.iter().any(|block| block.replaces_rules);
        (!is_replaced).then_some(rules)
    }

    /// `RewriteEngine`, with that of the sections that apply.
    fn rewrites(&self) -> bool {
        let of_directories = self.merged.rewrites;
        if !self.merged.has_sections_of_rules {
            return of_directories;
        }
        let mut certain = self.blocks().0.iter().rev();
        let of_sections = certain.find_map(|block| block.engine);
        of_sections.unwrap_or(of_directories)
    }

    /// Whether a section that may apply switches rewriting on.
    fn may_rewrite(&self) -> bool {
        self.merged.has_sections_of_rules
            && self
                .blocks()
                .1
                .iter()
                .any(|block| block.engine == Some(true))
    }

    /// Whether access is denied because rewriting is on and no symbolic links may be followed.
    pub(crate) fn forbids_rewriting(&self) -> bool {
        if !self.merged.restricts_links {
            return false;
        }
        let (certain, uncertain) = self.blocks();
        let mut links = AllowedLinks::default();
        certain
            .iter()
            .flat_map(|block| &block.links)
            .for_each(|options| links.apply(options));
        let forbids = |block: &&Block| {
            let mut links = links;
            block.links.iter().for_each(|options| links.apply(options));
            !links.any()
        };
        (self.rewrites() || self.may_rewrite()) && (!links.any() || uncertain.iter().any(forbids))
    }

    /// Applies `SetEnvIf` and the like.
    pub(crate) fn set_env(&self, facts: &Facts<'_>, path: &str, env: &mut Env) {
        if !self.merged.has_env {
            return;
        }
        let (certain, uncertain) = self.blocks();
        let mut certain = certain.iter().peekable();
        let mut may_apply = uncertain.iter().peekable();
        // A line may read variables of earlier sections, also of those that may not apply.
        for block in self.merged.blocks() {
            let is_block = |next: &&&Block| ptr::eq(**next, block);
            if certain.next_if(is_block).is_some() {
                for set in &block.env {
                    set.apply(facts, path, env);
                }
            } else if may_apply.next_if(is_block).is_some() {
                for set in &block.env {
                    set.apply_uncertain(facts, path, env);
                }
            }
        }
        // A section that may apply can be `<If>`, and Apache applies `<If>` after all others. So
        // the variables of these sections are set a second time.
        for set in uncertain.iter().flat_map(|block| &block.env) {
            set.apply_uncertain(facts, path, env);
        }
    }

    /// Applies `SetEnv` and the like, after the rules.
    pub(crate) fn fix_env(&self, env: &mut Env) {
        if !self.merged.has_fixed_env {
            return;
        }
        let (certain, uncertain) = self.blocks();
        let mut fixed = Env::default();
        for line in certain.iter().flat_map(|block| &block.fixed_env) {
            if !self.steps.take(fixed.steps()) {
                return;
            }
            match line {
                FixedEnv::Set(name, value) => fixed.set(name, value.clone()),
                FixedEnv::Unset(name) => fixed.unset(name),
                FixedEnv::Pass(name) => fixed.set_unknown(name),
            }
        }
        for line in uncertain.iter().flat_map(|block| &block.fixed_env) {
            if !self.steps.take(fixed.steps()) {
                return;
            }
            fixed.set_unknown(line.name());
        }
        env.overlay(fixed);
    }

    /// Checks whether the client may access the file.
    pub(crate) fn check(&self, facts: &Facts<'_>, env: &Env) -> Result<(), Denial> {
        if !self.merged.has_access && !self.merged.has_sections_of_rules {
            return Ok(());
        }
        let (certain, uncertain) = self.blocks();
        let mut access = FileAccess::default();
        for block in certain {
            access.merge(&block.compat, &block.require, block.merging);
        }
        let check = |access: &FileAccess<'_>| {
            access.check(facts, env).map_err(|closed| match closed {
                AccessDenied::Denied => Denial::DeniedByHtaccess,
                AccessDenied::NeedsUser => Denial::NeedsUser,
            })
        };
        check(&access)?;
        for block in uncertain {
            let mut access = access.clone();
            access.merge(&block.compat, &block.require, block.merging);
            check(&access)?;
        }
        let (rewrites, may_rewrite) = (self.rewrites(), self.may_rewrite());
        let closes = |block: &Block, rewrites: bool| {
            block.closes
                || block.closes_by_rule && (rewrites || may_rewrite)
                || block.needs_tls && !(facts.origin)().https
        };
        // Such a section would inherit these rules.
        let rules = self.merged.rules.as_ref();
        let inherits = rules.is_some_and(|rules| rules.holds_in_sections);
        let may_close = |block: &&Block| closes(block, block.engine.unwrap_or(rewrites));
        match inherits && may_rewrite && !rewrites
            || certain.iter().any(|block| closes(block, rewrites))
            || uncertain.iter().any(may_close)
        {
            true => Err(Denial::DeniedByHtaccess),
            false => Ok(()),
        }
    }

    /// Whether a PHP file is run. `forced` is the handler that a rule of mod_rewrite has set.
    pub(crate) fn runs_php(&self, forced: Option<FileHandler>) -> bool {
        if forced.is_some_and(|forced| forced != FileHandler::Php) {
            return false;
        }
        if !self.merged.has_handlers {
            return true;
        }
        let (certain, uncertain) = self.blocks();
        let php = self.php_settings(PhpHandlers::default(), certain);
        let runs = |block: &&Block| self.php_settings(php.clone(), &[*block]).runs();
        php.runs() && uncertain.iter().all(runs)
    }

    /// Whether Apache would run the file although Surus does not. A section that may apply can only
    /// make it source, not a file to send.
    pub(crate) fn is_source(&self, forced: Option<FileHandler>) -> bool {
        if forced.is_some_and(|forced| forced != FileHandler::Other) {
            return true;
        }
        if !self.merged.has_handlers {
            return false;
        }
        let (certain, uncertain) = self.blocks();
        let php = self.php_settings(PhpHandlers::default(), certain);
        let is_source = |block: &&Block| self.php_settings(php.clone(), &[*block]).is_source();
        php.is_source() || uncertain.iter().any(is_source)
    }

    fn php_settings(&self, mut php: PhpHandlers, blocks: &[&Block]) -> PhpHandlers {
        for line in blocks.iter().flat_map(|block| &block.handlers) {
            if !self.steps.take(line.steps()) {
                break;
            }
            php.apply(line, self.name);
        }
        php
    }

    /// The type that a file is sent with, if a directive names one.
    pub(crate) fn media_type(&self) -> Option<Arc<str>> {
        if !self.merged.has_handlers {
            return None;
        }
        let (certain, uncertain) = self.blocks();
        let lines = |block: &&'a Block| -> &'a [Switch] { &block.handlers };
        let certainly = || certain.iter().map(lines);
        let found = sent_type(certainly(), self.name, self.steps);
        let is_other = |block: &&'a Block| {
            let also = certainly().chain([lines(block)]);
            !block.handlers.is_empty() && sent_type(also, self.name, self.steps) != found
        };
        match uncertain.iter().any(is_other) {
            true => Some(NO_TYPE.into()),
            false => found.map(Into::into),
        }
    }

    /// The result of `Redirect` and `RedirectMatch` for a path.
    pub(crate) fn redirect(&self, path: &str) -> RedirectOutcome {
        if !self.merged.has_redirects {
            return RedirectOutcome::Nowhere;
        }
        let (certain, uncertain) = self.blocks();
        let leads = |led: &RedirectOutcome| *led != RedirectOutcome::Nowhere;
        // Deeper directories have precedence.
        let redirects = certain.iter().rev().flat_map(|block| &block.redirects);
        let apply = |redirect: &Redirect| match self.steps.take(1) {
            true => redirect.apply(path, self.steps),
            false => RedirectOutcome::Unknown,
        };
        let found = redirects.map(apply).find(leads);
        found.unwrap_or_else(|| {
            let mut redirects = uncertain.iter().flat_map(|block| &block.redirects);
            match redirects.any(|redirect| leads(&apply(redirect))) {
                true => RedirectOutcome::Unknown,
                false => RedirectOutcome::Nowhere,
            }
        })
    }
}

/// The rules of a directory, and their options. They replace those of its parents, unless one of
/// them sets inheritance.
fn rules_of(
    rewriting: &Rewriting,
    directory: &Arc<str>,
    above: &MergedRules,
) -> (Option<Arc<Rules>>, Options) {
    let options = rewriting.options.unwrap_or(above.options);
    let own = rewriting.rules.iter().cloned();
    let inherited = above
        .rules
        .iter()
        .flat_map(|above| above.rules.iter().cloned());
    let rules = Rules {
        rules: match options.taken_from(&above.options) {
            Inherits::No => own.collect(),
            Inherits::Behind => own.chain(inherited).collect(),
            Inherits::Before => inherited.chain(own).collect(),
        },
        holds_in_sections: options.taken_from(&options) != Inherits::No,
        directory: directory.clone(),
        base: rewriting.base.clone().or_else(|| {
            let above = above.rules.as_ref().filter(|_| options.merges_base);
            above.and_then(|above| above.base.clone())
        }),
    };
    (Some(Arc::new(rules)), options)
}
