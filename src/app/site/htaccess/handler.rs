//! Whether PHP is switched off for a file, by any of the ways in which people do that.

/// What the name of a handler or of a type stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handler {
    /// It runs PHP.
    Php,
    /// It runs other scripts, or refuses them where `Options` has no `ExecCGI`.
    Script,
    Other,
}

impl Handler {
    pub fn named(name: &str) -> Handler {
        let name = name.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        if has(&["source", "phps"]) || name.starts_with("text/") {
            Handler::Other
        } else if has(&["php", "lsapi", "fcgi", "fastcgi"]) {
            Handler::Php
        } else if has(&["cgi", "perl-script", "python", "lua-script", "wsgi-script"]) {
            Handler::Script
        } else {
            Handler::Other
        }
    }
}

/// A line that says who handles files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Switch {
    /// `php_flag engine`.
    Engine(bool),
    /// `SetHandler`.
    Set(Handler),
    /// `ForceType`; none for `None`, which takes an earlier one back.
    Type(Option<Handler>),
    /// `AddHandler`, with endings of names.
    AddHandler(Handler, Vec<String>),
    /// `AddType`.
    AddType(Handler, Vec<String>),
    /// `RemoveHandler`.
    RemoveHandler(Vec<String>),
    /// `RemoveType`.
    RemoveType(Vec<String>),
}

/// `.PHP` and `php` are the same ending.
pub fn ending(text: &str) -> String {
    text.trim_start_matches('.').to_ascii_lowercase()
}

/// What has been said of one file so far, in the order in which sections are merged.
#[derive(Debug, Clone)]
pub struct Php {
    engine: bool,
    set: Option<Handler>,
    forced: Option<Handler>,
    handler: Option<Handler>,
    media_type: Option<Handler>,
}

impl Default for Php {
    fn default() -> Php {
        Php {
            engine: true,
            set: None,
            forced: None,
            handler: None,
            media_type: None,
        }
    }
}

impl Switch {
    /// As Apache: it takes back what the same file has added, wherever it stands in it.
    pub fn removes_handler(&self) -> bool {
        matches!(self, Switch::RemoveHandler(_))
    }
}

impl Php {
    pub fn hear(&mut self, line: &Switch, name: &str) {
        match line {
            Switch::Engine(on) => self.engine = *on,
            Switch::Set(handler) => self.set = Some(*handler),
            Switch::Type(handler) => self.forced = *handler,
            Switch::AddHandler(handler, endings) if has(name, endings) => {
                self.handler = Some(*handler);
            }
            Switch::AddType(handler, endings) if has(name, endings) => {
                self.media_type = Some(*handler);
            }
            Switch::RemoveHandler(endings) if has(name, endings) => {
                self.handler = Some(Handler::Other);
            }
            Switch::RemoveType(endings) if has(name, endings) => {
                self.media_type = Some(Handler::Other);
            }
            _ => {}
        }
    }

    /// Would PHP run a file that it usually runs?
    pub fn runs(&self) -> bool {
        let may = |handler: Option<Handler>| handler.is_none_or(|one| one == Handler::Php);
        // A handler that is set is the only one that counts, and one that is added counts more than
        // a type.
        let is_on = match (self.set, self.handler) {
            (Some(set), _) => set == Handler::Php,
            (None, Some(handler)) => handler == Handler::Php && may(self.forced),
            (None, None) => may(self.forced) && may(self.media_type),
        };
        self.engine && is_on
    }

    /// Is a file run here that usually is sent, such as `page.html`?
    pub fn is_source(&self) -> bool {
        let all = [self.set, self.forced, self.handler, self.media_type];
        all.into_iter()
            .flatten()
            .any(|handler| handler != Handler::Other)
    }
}

/// Does the name end so, or have it on the way to its end as in `x.php.txt`?
fn has(name: &str, endings: &[String]) -> bool {
    let mut parts = name.split('.').skip(1);
    parts.any(|part| {
        endings
            .iter()
            .any(|ending| part.eq_ignore_ascii_case(ending))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_that_run_php_are_known_by_their_names() {
        for name in [
            "application/x-httpd-php",
            "application/x-httpd-php82___lsphp",
            "php-script",
            "proxy:unix:/run/php/php8.2-fpm.sock|fcgi://localhost",
            "x-httpd-php5",
            "fcgid-script",
            "fastcgi-script",
        ] {
            assert_eq!(Handler::named(name), Handler::Php, "{name}");
        }
        for name in [
            "none",
            "default-handler",
            "text/plain",
            "application/x-httpd-php-source",
            "Drupal_Security_Do_Not_Remove_See_SA_2006_006",
            "text/x-php",
        ] {
            assert_eq!(Handler::named(name), Handler::Other, "{name}");
        }
        for name in ["cgi-script", "application/x-httpd-cgi", "perl-script"] {
            assert_eq!(Handler::named(name), Handler::Script, "{name}");
        }
    }
}
