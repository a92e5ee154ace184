//! The effect of `Options` on access: Apache denies all files if rewriting is on and no symbolic
//! links may be followed.

/// The effect of one `Options` directive on symbolic links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkOptions {
    /// Cancels earlier settings.
    replaces: bool,
    /// `FollowSymLinks`.
    all: Option<bool>,
    /// `SymLinksIfOwnerMatch`.
    of_owner: Option<bool>,
}

impl LinkOptions {
    /// Parses arguments that Apache accepts.
    pub fn parse(words: &[String]) -> LinkOptions {
        let mut options = LinkOptions::default();
        for word in words {
            let name = word.trim_start_matches(['+', '-']);
            let is_signed = name.len() < word.len();
            options.replaces |= !is_signed;
            let on = Some(!word.starts_with('-'));
            match name.to_ascii_lowercase().as_str() {
                "all" | "followsymlinks" => options.all = on,
                "symlinksifownermatch" => options.of_owner = on,
                _ => {}
            }
        }
        options
    }

    /// Whether the directive may forbid a kind of link.
    pub fn restricts(&self) -> bool {
        self.replaces || self.all == Some(false) || self.of_owner == Some(false)
    }

    /// Whether the directive does not affect links.
    pub fn is_empty(&self) -> bool {
        *self == LinkOptions::default()
    }
}

/// The kinds of symbolic links that may be followed.
#[derive(Debug, Clone, Copy)]
pub struct AllowedLinks {
    all: bool,
    of_owner: bool,
}

impl Default for AllowedLinks {
    /// Apache's default.
    fn default() -> AllowedLinks {
        AllowedLinks {
            all: true,
            of_owner: false,
        }
    }
}

impl AllowedLinks {
    pub fn apply(&mut self, options: &LinkOptions) {
        let before = |kind| kind && !options.replaces;
        self.all = options.all.unwrap_or(before(self.all));
        self.of_owner = options.of_owner.unwrap_or(before(self.of_owner));
    }

    pub fn any(&self) -> bool {
        self.all || self.of_owner
    }
}
