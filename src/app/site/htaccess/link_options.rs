//! `Options`, as far as it decides about access: Apache denies all files where rewriting is on and
//! no kind of symbolic link may be followed.

/// What one `Options` says of symbolic links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkOptions {
    /// It takes back what was said before.
    replaces: bool,
    /// `FollowSymLinks`.
    all: Option<bool>,
    /// `SymLinksIfOwnerMatch`.
    of_owner: Option<bool>,
}

impl LinkOptions {
    /// Reads the words, which Apache takes.
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

    /// Whether it may take a kind of link away.
    pub fn restricts(&self) -> bool {
        self.replaces || self.all == Some(false) || self.of_owner == Some(false)
    }

    /// Whether it says anything of links.
    pub fn is_empty(&self) -> bool {
        *self == LinkOptions::default()
    }
}

/// The kinds of links that may be followed.
#[derive(Debug, Clone, Copy)]
pub struct Links {
    all: bool,
    of_owner: bool,
}

impl Default for Links {
    /// As Apache's default.
    fn default() -> Links {
        Links {
            all: true,
            of_owner: false,
        }
    }
}

impl Links {
    pub fn hear(&mut self, said: &LinkOptions) {
        let before = |kind| kind && !said.replaces;
        self.all = said.all.unwrap_or(before(self.all));
        self.of_owner = said.of_owner.unwrap_or(before(self.of_owner));
    }

    pub fn any(&self) -> bool {
        self.all || self.of_owner
    }
}
