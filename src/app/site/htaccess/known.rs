//! Apache's `.htaccess` directives, modules and version, as far as Surus knows them.

use super::cost::{ReadingBudget, Steps};
use super::parse::{DirectiveNode, words};
use super::pattern::Pattern;

/// Settings of PHP that run another file with each script.
pub(super) const AUTO_FILES: [&str; 2] = ["auto_prepend_file", "auto_append_file"];

/// Directives that do not affect access, or whose effect Surus provides itself.
const IGNORED: &[&str] = &[
    "acceptpathinfo",
    "addalt",
    "addaltbyencoding",
    "addaltbytype",
    "addcharset",
    "adddefaultcharset",
    "adddescription",
    "addencoding",
    "addicon",
    "addiconbyencoding",
    "addiconbytype",
    "addinputfilter",
    "addlanguage",
    "addoutputfilter",
    "addoutputfilterbytype",
    "aliaspreservepath",
    "anonymous",
    "anonymous_logemail",
    "anonymous_mustgiveemail",
    "anonymous_nouserid",
    "anonymous_verifyemail",
    "authbasicauthoritative",
    "authbasicfake",
    "authbasicprovider",
    "authbasicusedigestalgorithm",
    "authdbmgroupfile",
    "authdbmtype",
    "authdbmuserfile",
    "authdigestalgorithm",
    "authdigestdomain",
    "authdigestnccheck",
    "authdigestnoncelifetime",
    "authdigestprovider",
    "authdigestqop",
    "authformauthoritative",
    "authformbody",
    "authformdisablenostore",
    "authformfakebasicauth",
    "authformlocation",
    "authformloginrequiredlocation",
    "authformloginsuccesslocation",
    "authformlogoutlocation",
    "authformmethod",
    "authformmimetype",
    "authformpassword",
    "authformprovider",
    "authformsitepassphrase",
    "authformusername",
    "authgroupfile",
    "authldapauthorizeprefix",
    "authldapbindauthoritative",
    "authldapbinddn",
    "authldapbindpassword",
    "authldapcompareasuser",
    "authldapcomparednonserver",
    "authldapdereferencealiases",
    "authldapgroupattribute",
    "authldapgroupattributeisdn",
    "authldapinitialbindasuser",
    "authldapinitialbindpattern",
    "authldapmaxsubgroupdepth",
    "authldapremoteuserattribute",
    "authldapremoteuserisdn",
    "authldapsearchasuser",
    "authldapsubgroupattribute",
    "authldapsubgroupclass",
    "authldapurl",
    "authname",
    "authncacheprovidefor",
    "authncachetimeout",
    "authtype",
    "authuserfile",
    "authzdbmtype",
    "authzsendforbiddenonfailure",
    "cgipassauth",
    "cgivar",
    "checkbasenamematch",
    "checkcaseonly",
    "checkspelling",
    "contentdigest",
    "cookiedomain",
    "cookieexpires",
    "cookiehttponly",
    "cookiename",
    "cookiesamesite",
    "cookiesecure",
    "cookiestyle",
    "cookietracking",
    "defaulticon",
    "defaultlanguage",
    "defaulttype",
    "deflateinflatelimitrequestbody",
    "deflateinflateratioburst",
    "deflateinflateratiolimit",
    "directorycheckhandler",
    "directoryindexredirect",
    "directoryslash",
    "enablemmap",
    "enablesendfile",
    "errordocument",
    "expiresactive",
    "expiresbytype",
    "expiresdefault",
    "fancyindexing",
    "fileetag",
    "filterchain",
    "filterdeclare",
    "filterprotocol",
    "filterprovider",
    "forcelanguagepriority",
    "header",
    "headername",
    "imapbase",
    "imapdefault",
    "imapmenu",
    "indexheadinsert",
    "indexignore",
    "indexignorereset",
    "indexoptions",
    "indexorderdefault",
    "indexstylesheet",
    "languagepriority",
    "limitrequestbody",
    "limitxmlrequestbody",
    "logiotrackttfb",
    "metadir",
    "metafiles",
    "metasuffix",
    "multiviewsmatch",
    "qualifyredirecturl",
    "readmename",
    "redirectrelative",
    "removecharset",
    "removeencoding",
    "removeinputfilter",
    "removelanguage",
    "removeoutputfilter",
    "requestheader",
    "rlimitcpu",
    "rlimitmem",
    "rlimitnproc",
    "serversignature",
    "session",
    "sessioncookiename",
    "sessioncookiename2",
    "sessioncookieremove",
    "sessioncryptocipher",
    "sessioncryptopassphrase",
    "sessiondbdcookiename",
    "sessiondbdcookiename2",
    "sessiondbdcookieremove",
    "sessiondbddeletelabel",
    "sessiondbdinsertlabel",
    "sessiondbdperuser",
    "sessiondbdselectlabel",
    "sessiondbdupdatelabel",
    "sessionenv",
    "sessionexclude",
    "sessionexpiryupdateinterval",
    "sessionheader",
    "sessioninclude",
    "sessionmaxage",
    "setinputfilter",
    "setoutputfilter",
    "ssierrormsg",
    "ssietag",
    "ssilastmodified",
    "ssilegacyexprparser",
    "ssitimeformat",
    "ssiundefinedecho",
    "sslcacertificatefile",
    "sslcacertificatepath",
    "sslciphersuite",
    "ssllog",
    "sslloglevel",
    "ssloptions",
    "sslrenegbuffersize",
    "sslusername",
    "sslverifydepth",
    "substitute",
    "substituteinheritbefore",
    "substitutemaxlinelength",
    "xbithack",
    "xml2encdefault",
    "xml2startparse",
    // Directives of third-party modules that are common at web hosts.
    "cachedisable",
    "cacheenable",
    "cachelookup",
    "modpagespeed",
    "secfilterengine",
    "secfilterscanpost",
    "secrequestbodyaccess",
    "secruleengine",
    "secruleremovebyid",
    "suphp_configpath",
];

/// Whether a directive, named in lower case, can be ignored.
pub(super) fn is_ignored(name: &str) -> bool {
    IGNORED.contains(&name) || name.starts_with("modpagespeed")
}

/// Modules that `<IfModule>` can name, in addition to those of PHP.
const MODULES: &[&str] = &[
    "access_compat",
    "alias",
    "auth_basic",
    "authn_core",
    "authn_file",
    "authz_core",
    "authz_groupfile",
    "authz_host",
    "authz_user",
    "autoindex",
    "brotli",
    "deflate",
    "dir",
    "env",
    "expires",
    "filter",
    "headers",
    "log_config",
    "logio",
    "mime",
    "negotiation",
    "rewrite",
    "setenvif",
    "so",
    "ssl",
    "status",
    "unixd",
    "version",
    "watchdog",
];

/// Modules whose source files are not called `mod_….c`.
const CORE: &[&str] = &[
    "core.c",
    "core_module",
    "http_core.c",
    "http_module",
    "mpm_prefork_module",
    "prefork.c",
];

/// Whether Surus replaces a module. Like Apache, accepts the name of its source file (`mod_x.c`) or
/// its identifier (`x_module`), and respects case.
fn has_module(name: &str) -> bool {
    let file = || name.strip_prefix("mod_")?.strip_suffix(".c");
    let module = file().or_else(|| name.strip_suffix("_module"));
    let is_known = |module: &str| module.starts_with("php") || MODULES.contains(&module);
    CORE.contains(&name) || module.is_some_and(is_known)
}

/// The version that `<IfVersion>` compares with: Debian 12's.
const VERSION: [u32; 3] = [2, 4, 71];

/// Whether the lines of `<IfModule>`, `<IfDefine>` or `<IfVersion>` apply. None for another
/// section; the error says what is invalid.
pub(super) fn counts(node: &DirectiveNode, budget: &ReadingBudget) -> Option<Result<bool, String>> {
    let argument = node.rest.trim();
    let (name, is_negated) = match argument.strip_prefix('!') {
        Some(name) => (name, true),
        None => (argument, false),
    };
    // As in Apache, further names are ignored.
    let one = |has: fn(&str) -> bool| match words(name).first() {
        Some(name) => Ok(has(name) != is_negated),
        None => Err(format!("<{}> needs a name", node.name)),
    };
    let counts = match node.name.as_str() {
        "ifmodule" => one(has_module),
        "ifdefine" => one(|_| false),
        "ifversion" if node.has_text_behind => Err(format!("text follows <IfVersion {argument}>")),
        "ifversion" => {
            let is = is_version(name.trim(), budget);
            let wrong = || format!("<IfVersion {argument}> does not compare with a version");
            is.map(|is| is != is_negated).ok_or_else(wrong)
        }
        _ => return None,
    };
    Some(match counts {
        // Like Apache, which does not check the end of a section that does not apply.
        Ok(true) if node.has_text_behind_end => Err(format!("text follows </{}>", node.name)),
        counts => counts,
    })
}

fn is_version(text: &str, budget: &ReadingBudget) -> Option<bool> {
    let words = words(text);
    let (sign, other) = match words.as_slice() {
        [other] => {
            let at = other.find(|c| !"<>=~".contains(c))?;
            other.split_at(at)
        }
        [sign, other] => (sign.as_str(), other.as_str()),
        _ => return None,
    };
    let in_slashes = || other.strip_prefix('/')?.strip_suffix('/');
    let pattern = match sign {
        "~" => Some(other),
        "" | "=" | "==" => in_slashes(),
        _ => None,
    };
    if let Some(pattern) = pattern {
        let [major, minor, patch] = VERSION;
        return Pattern::new(pattern, false, budget)
            .ok()?
            .is_match(&format!("{major}.{minor}.{patch}"), &Steps::default());
    }
    let mut version = [0; 3];
    let mut parts = other.split('.');
    for (part, text) in version.iter_mut().zip(parts.by_ref()) {
        *part = text.parse().ok()?;
    }
    if parts.next().is_some() {
        return None;
    }
    match sign {
        "" | "=" | "==" => Some(VERSION == version),
        ">" => Some(VERSION > version),
        ">=" => Some(VERSION >= version),
        "<" => Some(VERSION < version),
        "<=" => Some(VERSION <= version),
        _ => None,
    }
}

/// The integer at the beginning of a text, or 0, like C's `atoi`.
pub(super) fn leading_number(text: &str) -> i64 {
    let text = text.trim_start();
    let is_part = |(at, c): &(usize, char)| c.is_ascii_digit() || *at == 0 && "+-".contains(*c);
    let part = text.char_indices().take_while(is_part).count();
    text[..part].parse().unwrap_or(0)
}

/// Whether Apache knows the status; it answers 500 for others.
pub(super) fn is_status(code: u16) -> bool {
    matches!(
        code,
        100..=103 | 200..=208 | 226 | 300..=305 | 307 | 308 | 400..=417 | 421..=424 | 426 | 428
            | 429 | 431 | 451 | 500..=508 | 510 | 511
    )
}

/// The arguments of `Options`.
const OPTIONS: &[&str] = &[
    "all",
    "execcgi",
    "followsymlinks",
    "includes",
    "includesnoexec",
    "indexes",
    "multiviews",
    "none",
    "symlinksifownermatch",
];

/// Whether Apache accepts the arguments of `Options`.
pub(super) fn are_options(words: &[String]) -> bool {
    let is_signed = |word: &String| word.starts_with(['+', '-']);
    let is_known = |word: &String| {
        let name = word.trim_start_matches(['+', '-']).to_ascii_lowercase();
        OPTIONS.contains(&name.as_str())
    };
    // `All -Indexes` is valid, `Indexes -All` is not.
    let may_be_mixed = |word: &String| {
        is_signed(word) || ["all", "none"].contains(&word.to_ascii_lowercase().as_str())
    };
    words.iter().all(is_known) && (words.iter().all(may_be_mixed) || !words.iter().any(is_signed))
}

/// The methods that Apache knows.
const METHODS: &[&str] = &[
    "BASELINE-CONTROL",
    "CHECKIN",
    "CHECKOUT",
    "CONNECT",
    "COPY",
    "DELETE",
    "GET",
    "LABEL",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCOL",
    "MKWORKSPACE",
    "MOVE",
    "OPTIONS",
    "PATCH",
    "POST",
    "PROPFIND",
    "PROPPATCH",
    "PUT",
    "REPORT",
    "TRACE",
    "UNCHECKOUT",
    "UNLOCK",
    "UPDATE",
    "VERSION-CONTROL",
];

/// The method of this name. `HEAD` means `GET`, as in Apache.
pub(super) fn method(name: &str) -> Option<&'static str> {
    let name = if name == "HEAD" { "GET" } else { name };
    METHODS.iter().find(|known| **known == name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_version_compares_by_operator_or_pattern() {
        for (text, expected) in [
            (">= 2.4", Some(true)),
            (">=2.4", Some(true)),
            ("> 3", Some(false)),
            ("< 2.4.10", Some(false)),
            ("2.4.71", Some(true)),
            ("= 2.4", Some(false)),
            (r"~ ^2\.4", Some(true)),
            (r"= /^2\.2/", Some(false)),
            ("", None),
            (">=", None),
            ("=> 2.4", None),
            ("> 2.4 or so", None),
            ("> two", None),
        ] {
            assert_eq!(
                is_version(text, &ReadingBudget::default()),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn options_with_mixed_signs_are_rejected() {
        let are = |text: &str| are_options(&words(text));
        assert!(
            are("-Indexes +FollowSymLinks") && are("All -Indexes") && are("indexes MultiViews")
        );
        assert!(!are("Indexes -FollowSymLinks") && !are("-Indxes"));
    }
}
