//! Whether PHP is switched off for a file, by any of the ways in which people do that.

/// A line that says who handles files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Switch {
    /// `php_flag engine`.
    Engine(bool),
    /// `SetHandler`: is it PHP?
    Set(bool),
    /// `ForceType`; none for `None`, which takes an earlier one back.
    Type(Option<bool>),
    /// `AddHandler`.
    AddHandler { is_php: bool, endings: Vec<String> },
    /// `AddType`.
    AddType { is_php: bool, endings: Vec<String> },
    /// `RemoveHandler`.
    RemoveHandler(Vec<String>),
    /// `RemoveType`.
    RemoveType(Vec<String>),
}

/// Does this name of a handler or of a type stand for running PHP?
pub fn is_php(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let runs = ["php", "lsapi", "fcgi", "fastcgi"]
        .iter()
        .any(|word| name.contains(word));
    runs && !name.contains("source") && !name.contains("phps") && !name.starts_with("text/")
}

/// `.PHP` and `php` are the same ending.
pub fn ending(text: &str) -> String {
    text.trim_start_matches('.').to_ascii_lowercase()
}

/// What has been said of one file so far, in the order in which sections are merged.
#[derive(Debug, Clone)]
pub struct Php {
    engine: bool,
    set: Option<bool>,
    forced: Option<bool>,
    handler: Option<bool>,
    media_type: Option<bool>,
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

impl Php {
    pub fn hear(&mut self, line: &Switch, name: &str) {
        match line {
            Switch::Engine(on) => self.engine = *on,
            Switch::Set(is_php) => self.set = Some(*is_php),
            Switch::Type(is_php) => self.forced = *is_php,
            Switch::AddHandler { is_php, endings } if has(name, endings) => {
                self.handler = Some(*is_php);
            }
            Switch::AddType { is_php, endings } if has(name, endings) => {
                self.media_type = Some(*is_php);
            }
            Switch::RemoveHandler(endings) if has(name, endings) => self.handler = Some(false),
            Switch::RemoveType(endings) if has(name, endings) => self.media_type = Some(false),
            _ => {}
        }
    }

    /// Would PHP run a file that it usually runs?
    pub fn runs(&self) -> bool {
        // A handler that is set is the only one that counts, and one that is added counts more than
        // a type.
        let is_on = match (self.set, self.handler) {
            (Some(set), _) => set,
            (None, Some(handler)) => handler && self.forced != Some(false),
            (None, None) => ![self.forced, self.media_type].contains(&Some(false)),
        };
        self.engine && is_on
    }

    /// Is a file PHP here that usually is none, such as `page.html`?
    pub fn is_source(&self) -> bool {
        [self.set, self.forced, self.handler, self.media_type].contains(&Some(true))
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
            assert!(is_php(name), "{name}");
        }
        for name in [
            "none",
            "default-handler",
            "text/plain",
            "cgi-script",
            "application/x-httpd-php-source",
            "Drupal_Security_Do_Not_Remove_See_SA_2006_006",
            "text/x-php",
        ] {
            assert!(!is_php(name), "{name}");
        }
    }
}
