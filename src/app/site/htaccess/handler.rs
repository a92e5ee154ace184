//! Decides whether handler and type directives switch PHP on or off for a file, and the type that
//! it is sent with.

use std::sync::{Arc, LazyLock};

use regex::Regex;

use super::cost::Steps;

/// What a handler or media type runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileHandler {
    /// Runs PHP.
    Php,
    /// Runs other scripts, or denies them if `Options` lacks `ExecCGI`.
    Script,
    /// Has a name like PHP's that no known server has. For Apache, such a name switches PHP off. On
    /// the server that the file was written for it may run PHP, so other files could be source.
    Unknown,
    Other,
}

/// Names of Apache's modules, and of the hosting companies that offer several versions.
const PHP_NAMES: &str = r"(?x)^(?:
    (?:application/)? x-(?:httpd-(?:ea-|alt-|fast|su|ls)?|mapp-|ls) php
        (?:-?[0-9]+(?:\.[0-9]+)*s?)? (?:___lsphp|-(?:cgi|fcgi|fastcgi|fpm|script)[0-9]*)?
    | php [0-9.]* -(?:cgi|fcgi|fastcgi|fpm|script)[0-9]*
    | (?:fcgid|fastcgi)-script
    | proxy:(?:.*\|)?fcgi://.*
)$";

/// Names that send the source with colors.
const SOURCE_NAMES: [&str; 4] = [
    "application/x-httpd-php-source",
    "application/x-httpd-phps",
    "x-httpd-php-source",
    "x-httpd-phps",
];

impl FileHandler {
    pub fn named(name: &str) -> FileHandler {
        static PHP: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(PHP_NAMES).expect("the expression is constant"));
        let name = name.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        if SOURCE_NAMES.contains(&&*name) || name.starts_with("text/") {
            FileHandler::Other
        } else if has(&["php", "lsapi", "fcgi", "fastcgi"]) {
            match PHP.is_match(&name) {
                true => FileHandler::Php,
                false => FileHandler::Unknown,
            }
        } else if has(&["cgi", "perl-script", "python", "lua-script", "wsgi-script"]) {
            FileHandler::Script
        } else {
            FileHandler::Other
        }
    }
}

/// The problem of a directive or flag with [`FileHandler::Unknown`].
pub(super) fn not_php(what: &str) -> String {
    format!(
        "{what} has no known name of a PHP handler, so PHP does not run, and other files are not \
         sent; write application/x-httpd-php to run PHP, or `php_flag engine off` to switch it off"
    )
}

/// A media type that a directive names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaType {
    pub name: Arc<str>,
    pub handler: FileHandler,
}

impl MediaType {
    pub fn named(name: &str) -> MediaType {
        // As in Apache, the handler is the type without its parameters.
        let kind = name.split(';').next().unwrap_or(name);
        MediaType {
            name: name.into(),
            handler: FileHandler::named(kind.trim_end()),
        }
    }
}

/// A directive that selects the handler of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Switch {
    /// `php_flag engine`.
    Engine(bool),
    /// `SetHandler`.
    Set(FileHandler),
    /// `ForceType`; `None` cancels an earlier one.
    Type(Option<MediaType>),
    /// `AddHandler`, with file name extensions.
    AddHandler(FileHandler, Vec<String>),
    /// `AddType`.
    AddType(MediaType, Vec<String>),
    /// `RemoveHandler`.
    RemoveHandler(Vec<String>),
    /// `RemoveType`.
    RemoveType(Vec<String>),
}

/// Normalizes an extension: `.PHP` and `php` are the same.
pub fn ending(text: &str) -> String {
    text.trim_start_matches('.').to_ascii_lowercase()
}

/// The handler settings for one file, in the order in which sections are merged.
#[derive(Debug, Clone)]
pub struct PhpHandlers {
    engine: bool,
    set: Option<FileHandler>,
    forced: Option<FileHandler>,
    handler: Option<FileHandler>,
    media_type: Option<FileHandler>,
}

impl Default for PhpHandlers {
    fn default() -> PhpHandlers {
        PhpHandlers {
            engine: true,
            set: None,
            forced: None,
            handler: None,
            media_type: None,
        }
    }
}

impl Switch {
    /// As in Apache, it cancels the additions of the same file, regardless of their order.
    pub fn removes_handler(&self) -> bool {
        matches!(self, Switch::RemoveHandler(_))
    }

    /// The handler that it selects for files.
    pub(super) fn handler(&self) -> Option<FileHandler> {
        match self {
            Switch::Set(handler) | Switch::AddHandler(handler, _) => Some(*handler),
            Switch::Type(Some(kind)) | Switch::AddType(kind, _) => Some(kind.handler),
            Switch::Engine(_)
            | Switch::Type(None)
            | Switch::RemoveHandler(_)
            | Switch::RemoveType(_) => None,
        }
    }

    pub(super) fn steps(&self) -> usize {
        match self {
            Switch::Engine(_) | Switch::Set(_) | Switch::Type(_) => 1,
            Switch::AddHandler(_, endings)
            | Switch::AddType(_, endings)
            | Switch::RemoveHandler(endings)
            | Switch::RemoveType(endings) => 1 + endings.len() / 4,
        }
    }
}

impl PhpHandlers {
    pub fn apply(&mut self, line: &Switch, name: &str) {
        match line {
            Switch::Engine(on) => self.engine = *on,
            Switch::Set(handler) => self.set = Some(*handler),
            Switch::Type(forced) => self.forced = forced.as_ref().map(|forced| forced.handler),
            Switch::AddHandler(handler, endings) if has(name, endings) => {
                self.handler = Some(*handler);
            }
            Switch::AddType(added, endings) if has(name, endings) => {
                self.media_type = Some(added.handler);
            }
            Switch::RemoveHandler(endings) if has(name, endings) => {
                self.handler = Some(FileHandler::Other);
            }
            Switch::RemoveType(endings) if has(name, endings) => {
                self.media_type = Some(FileHandler::Other);
            }
            _ => {}
        }
    }

    /// Whether a file that normally runs as PHP still does.
    pub fn runs(&self) -> bool {
        let may = |handler: Option<FileHandler>| handler.is_none_or(|one| one == FileHandler::Php);
        // `SetHandler` overrides everything else, and an added handler overrides a type.
        let is_on = match (self.set, self.handler) {
            (Some(set), _) => set == FileHandler::Php,
            (None, Some(handler)) => handler == FileHandler::Php && may(self.forced),
            (None, None) => may(self.forced) && may(self.media_type),
        };
        self.engine && is_on
    }

    /// Whether a file that is normally sent, such as `page.html`, would be run.
    pub fn is_source(&self) -> bool {
        let all = [self.set, self.forced, self.handler, self.media_type];
        all.into_iter()
            .flatten()
            .any(|handler| handler != FileHandler::Other)
    }
}

/// The type of a file whose extension has lost its type. Browsers run nothing of this type.
pub(super) const NO_TYPE: &str = "application/octet-stream";

/// The type of a file that is sent, if the directives name one. Each slice has those of a section,
/// in the order in which sections are merged.
pub(super) fn sent_type<'a>(
    sections: impl Iterator<Item = &'a [Switch]>,
    name: &str,
    steps: &Steps,
) -> Option<&'a str> {
    let mut forced = None;
    // As in Apache, each extension of `x.html.en` may have a type, and the last one decides.
    let mut added: Vec<(&str, Option<&'a str>)> =
        name.split('.').skip(1).map(|part| (part, None)).collect();
    let mut set = |endings: &[String], to: &'a str| {
        for (part, kind) in &mut added {
            if endings
                .iter()
                .any(|ending| part.eq_ignore_ascii_case(ending))
            {
                *kind = Some(to);
            }
        }
    };
    for line in sections.flatten() {
        if !steps.take(line.steps()) {
            return None;
        }
        match line {
            Switch::Type(kind) => forced = kind.as_ref().map(|kind| &*kind.name),
            Switch::AddType(kind, endings) => set(endings, &kind.name),
            Switch::RemoveType(endings) => set(endings, NO_TYPE),
            _ => {}
        }
    }
    let is_usual = |part: &str| mime_guess::from_ext(part).first_raw().is_some();
    let last = added
        .into_iter()
        .rev()
        .find(|(part, kind)| kind.is_some() || is_usual(part));
    forced.or(last.and_then(|(_, kind)| kind))
}

/// Whether the name has one of the extensions, possibly followed by others as in `x.php.txt`.
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
    fn handler_name_of_php_is_recognised() {
        for name in [
            "application/x-httpd-php",
            "Application/X-HTTPD-PHP",
            "application/x-httpd-php5",
            "application/x-httpd-php5s",
            "application/x-httpd-php82",
            "application/x-httpd-php7.4",
            "application/x-httpd-php-7.4",
            "application/x-httpd-php82___lsphp",
            "application/x-httpd-php-fpm",
            "application/x-httpd-ea-php81",
            "application/x-httpd-ea-php83___lsphp",
            "application/x-httpd-alt-php82___lsphp",
            "application/x-httpd-fastphp",
            "application/x-httpd-suphp",
            "application/x-httpd-lsphp",
            "application/x-lsphp",
            "application/x-lsphp82",
            "x-httpd-php5",
            "x-mapp-php5.5",
            "php-script",
            "php5-script",
            "php56-script",
            "php-cgi",
            "php-cgi2",
            "php-fcgi",
            "php-fastcgi5",
            "php7.4-fpm",
            "fcgid-script",
            "fastcgi-script",
            "proxy:unix:/run/php/php8.2-fpm.sock|fcgi://localhost",
            "proxy:fcgi://127.0.0.1:9000",
        ] {
            assert_eq!(FileHandler::named(name), FileHandler::Php, "{name}");
        }
        for name in [
            "none",
            "default-handler",
            "text/plain",
            "application/x-httpd-php-source",
            "Drupal_Security_Do_Not_Remove_See_SA_2006_006",
            "text/x-php",
        ] {
            assert_eq!(FileHandler::named(name), FileHandler::Other, "{name}");
        }
        for name in ["cgi-script", "application/x-httpd-cgi", "perl-script"] {
            assert_eq!(FileHandler::named(name), FileHandler::Script, "{name}");
        }
    }

    #[test]
    fn name_that_only_contains_php_runs_nothing() {
        for name in [
            "no-php",
            "nophp",
            "php",
            "x-php",
            "php-off",
            "php-disabled",
            "application/php",
            "application/x-php",
            "application/x-httpd-nophp",
            "application/x-httpd-no-php",
            "application/x-httpd-php-off",
            "application/x-httpd-php-disabled",
            "application/x-httpd-php;x",
            "no-php-script",
            "php-no-script",
            "php-cgi-off",
            "no-fcgi",
            "fastcgi",
            "lsapi-off",
            "proxy:http://php.example/",
        ] {
            assert_eq!(FileHandler::named(name), FileHandler::Unknown, "{name}");
            for line in [
                Switch::Set(FileHandler::named(name)),
                Switch::AddHandler(FileHandler::named(name), vec!["php".into()]),
                Switch::Type(Some(MediaType::named(&format!("no/{name}")))),
                Switch::AddType(MediaType::named(&format!("no/{name}")), vec!["php".into()]),
            ] {
                let mut php = PhpHandlers::default();
                php.apply(&line, "x.php");
                assert!(!php.runs() && php.is_source(), "{line:?}");
            }
        }
        for name in [
            "application/x-httpd-php;charset=utf-8",
            "application/x-httpd-php ; q=1",
        ] {
            assert_eq!(MediaType::named(name).handler, FileHandler::Php, "{name}");
        }
    }
}
