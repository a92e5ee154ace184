//! Tells from its files which version a WordPress has, and whether it can be booted.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::{front_controller, read};

pub fn version(root: &Path) -> Option<String> {
    let text = read(&root.join("wp-includes/version.php"))?;
    let (_, rest) = text.split_once("$wp_version = '")?;
    Some(rest.split_once('\'')?.0.to_string())
}

/// Why WordPress cannot be booted.
pub fn obstacle(root: &Path) -> Option<String> {
    if !root.join("wp-load.php").is_file() {
        return Some("WordPress is not in the document root (site.root)".to_string());
    }
    let Some(configuration) = configuration(root) else {
        return Some("it is not configured yet: wp-config.php is missing".to_string());
    };
    let Some(text) = read(&configuration) else {
        return Some("cannot read wp-config.php".to_string());
    };
    let found = use_of_request(&front_controller::without_comments(&text))?;
    Some(format!(
        "wp-config.php uses `{found}`, and a boot would do so once for all requests"
    ))
}

/// The file that wp-load.php includes. The one above belongs to another WordPress if that is there.
fn configuration(root: &Path) -> Option<PathBuf> {
    let (own, above) = (root.join("wp-config.php"), root.join("../wp-config.php"));
    let is_of_other = root.join("../wp-settings.php").exists();
    if own.is_file() {
        Some(own)
    } else {
        (above.is_file() && !is_of_other).then_some(above)
    }
}

/// Parts of `REPEATED`, which php/src/Boot/WordPressCode.php has, too.
const VALUE: &str = r#"\$_SERVER\s*\[\s*["\x27][A-Z0-9_]+["\x27]\s*\]"#;
const WORD: &str = r"\b(?i:isset|empty|strpos|stripos|str_contains|strtolower|true|false|and|or)\b";
const TEXT: &str = r#"["\x27][A-Za-z0-9]*["\x27]|\b[0-9]+\b"#;
const SIGN: &str = r"[\s(),!=&|?<>-]";
const KEY: &str = r#"\$_SERVER\s*\[\s*["\x27](?:HTTPS|SERVER_PORT)["\x27]\s*\]"#;

/// A statement that the boot script repeats for each request: it sets HTTPS, perhaps if a value of
/// `$_SERVER` says that the proxy has it.
static REPEATED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let condition = format!(r"\bif\s*\((?:{VALUE}|{WORD}|{TEXT}|{SIGN})+\)\s*");
    let sets = format!(r"{KEY}\s*=\s*(?:{TEXT}|[A-Za-z0-9]+)\s*;");
    Regex::new(&format!(
        r"(?:{condition})?(?:\{{\s*(?:{sets}\s*)+\}}|{sets})"
    ))
    .ok()
});

/// The end of a block without braces.
static BLOCK_END: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)\bend(?:if|while|for|foreach|switch)\b").ok());

/// Code that may use the request, with the key of a value, and whether it changes that value.
static USE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let server = r#"\$_SERVER\b(?:\s*\[\s*['"]?(?P<key>\w+)['"]?\s*\])?"#;
    let others = r"\$_(?:GET|POST|COOKIE|REQUEST|FILES)\b|\bINPUT_(?:SERVER|GET|POST|COOKIE)\b";
    let variable = r#"\bgetenv\s*\(\s*['"](?:HTTP|REMOTE|REQUEST|SERVER)\w*['"][^()]*\)"#;
    Regex::new(&format!(
        r"(?P<value>{server}|{others}|{variable})(?P<change>\s*(?:\?\?|\.)?=(?:[^=>]|$))?"
    ))
    .ok()
});

/// Keys of `$_SERVER` whose values are those of the site, and names of environment variables.
static OF_SITE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let keys = "DOCUMENT_ROOT|SCRIPT_FILENAME|SERVER_SOFTWARE|argc|argv";
    Regex::new(&format!(r"^(?:{keys}|(?:APP|DB|MYSQL|WORDPRESS|WP)_\w+)$")).ok()
});

/// The first use of the request in wp-config.php that the boot script does not repeat. The boot
/// script repeats each text that matches `REPEATED`, so each must be a statement of its own.
fn use_of_request(code: &str) -> Option<String> {
    let masked = front_controller::without_strings(code);
    let mut rest = code.to_string();
    for found in REPEATED.as_ref()?.find_iter(code) {
        if !is_alone(&masked, found.range()) {
            return first_use(found.as_str(), found.as_str());
        }
        rest.replace_range(found.range(), &" ".repeat(found.len()));
    }
    let masked = front_controller::without_texts(&rest);
    first_use(
        &rest,
        &front_controller::without_unbooted_blocks(&rest, &masked),
    )
}

/// The first use in the parts of the code that `masked` shows.
fn first_use(code: &str, masked: &str) -> Option<String> {
    let is_use = |found: &Captures<'_>| {
        let is_shown = found
            .get(0)
            .is_some_and(|it| !masked[it.start()..].starts_with(' '));
        let of_site = found.name("key").zip(OF_SITE.as_ref());
        let is_of_site = of_site.is_some_and(|(key, regex)| regex.is_match(key.as_str()));
        is_shown && (!is_of_site || found.name("change").is_some())
    };
    let found = USE.as_ref()?.captures_iter(code).find(is_use)?;
    Some(found.name("value")?.as_str().to_string())
}

/// Whether the code without strings has at `range` a statement that is in no block, and part of no
/// other condition.
fn is_alone(masked: &str, range: Range<usize>) -> bool {
    let before = masked[..range.start].trim_end();
    let after = masked[range.end..].trim_start();
    let text = &masked[range];
    let is_code = !text.starts_with(' ') && text.ends_with([';', '}']);
    let begins = before.ends_with([';', '}']) || before.ends_with("<?php");
    let has_plain_blocks = BLOCK_END.as_ref().is_some_and(|it| !it.is_match(masked));
    let is_outside = before.matches('{').count() == before.matches('}').count();
    is_code && begins && has_plain_blocks && is_outside && !after.starts_with("else")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The file of WordPress's Docker image, in short.
    const DOCKER: &str = r"<?php
        if (!function_exists('getenv_docker')) {
            function getenv_docker($env, $default) {
                return getenv($env) ?: $default;
            }
        }
        define('AUTH_KEY', getenv_docker('WORDPRESS_AUTH_KEY', '}{$_GET it\'s'));
        if (isset($_SERVER['HTTP_X_FORWARDED_PROTO'])
            && strpos($_SERVER['HTTP_X_FORWARDED_PROTO'], 'https') !== false) {
            $_SERVER['HTTPS'] = 'on';
        }
        if ($configExtra = getenv_docker('WORDPRESS_CONFIG_EXTRA', '')) {
            eval($configExtra);
        }
        require_once ABSPATH . 'wp-settings.php';";

    #[test]
    fn statements_that_say_that_the_proxy_has_https_are_repeated() {
        for code in [
            DOCKER,
            "<?php $_SERVER['HTTPS'] = 'on'; define('A', 'b');",
            "<?php if ( strpos( $_SERVER[\"HTTP_X_FORWARDED_PROTO\"], 'https' ) !== false )\n\
             $_SERVER['HTTPS']='on';",
            "<?php if (($_SERVER['HTTP_X_FORWARDED_PROTO'] ?? '') === 'https') {\n\
             $_SERVER['HTTPS'] = true; $_SERVER['SERVER_PORT'] = 443; }",
            "<?php define('A', 1); if (!empty($_SERVER['HTTP_CF_VISITOR']) AND FALSE !== \
             stripos($_SERVER['HTTP_CF_VISITOR'], 'https')) { $_SERVER['HTTPS'] = '1'; }",
            "<?php if (PHP_SAPI === 'cli') { $_SERVER['HTTP_HOST'] = 'example.org'; }",
            "<?php if ($_SERVER['APP_ENV'] == 'dev') { define('WP_DEBUG', true); }",
            "<?php define('WP_CONTENT_DIR', \"{$_SERVER['DOCUMENT_ROOT']}/content\");",
            "<?php define('A', '$_SERVER[HTTP_HOST]'); define('B', \"\\$_GET[b] \\$_POST\");",
            "<?php define('A', <<<'B'\n$_SERVER[HTTP_HOST]\nB); define('C', getenv('APP_HOST'));",
        ] {
            assert_eq!(use_of_request(code), None, "{code}");
        }
    }

    #[test]
    fn other_uses_of_the_request_are_found() {
        let proxy = "$_SERVER['HTTP_X_FORWARDED_PROTO']";
        let set = "$_SERVER['HTTPS'] = 'on';";
        let address = "$_SERVER['REMOTE_ADDR']";
        for (code, found) in [
            (
                "define('WP_HOME', 'http://' . $_SERVER['HTTP_HOST']);".to_string(),
                "$_SERVER['HTTP_HOST']",
            ),
            (format!("{address} = $_SERVER['HTTP_X_REAL_IP'];"), address),
            (
                "$_SERVER['SERVER_NAME'] = NAME;".to_string(),
                "$_SERVER['SERVER_NAME']",
            ),
            (format!("if (PROXY) {{ {set} }}"), "$_SERVER['HTTPS']"),
            (format!("if (PROXY) {{ a(); {set} }}"), "$_SERVER['HTTPS']"),
            (format!("if (PROXY) {set}"), "$_SERVER['HTTPS']"),
            (format!("PROXY && {set}"), "$_SERVER['HTTPS']"),
            (format!("function a() {{ {set} }}"), "$_SERVER['HTTPS']"),
            (
                format!("if ({proxy} === 'https') {{ {set} define('A', 1); }}"),
                "$_SERVER['HTTPS']",
            ),
            (
                format!("if (PROXY): a(); {set} endif;"),
                "$_SERVER['HTTPS']",
            ),
            // The boot script would repeat the statement without its condition.
            (
                format!("if (PHP_SAPI === 'cli') {{ {set} }}"),
                "$_SERVER['HTTPS']",
            ),
            (
                "define('A', '; $_SERVER[\"HTTPS\"] = 1;');".to_string(),
                "$_SERVER[\"HTTPS\"]",
            ),
            (
                "$_SERVER['DOCUMENT_ROOT'] = __DIR__;".to_string(),
                "$_SERVER['DOCUMENT_ROOT']",
            ),
            (
                format!("if ({proxy} === 'https') {{ {set} }} else {{ define('A', 1); }}"),
                proxy,
            ),
            (
                format!("if (PROXY) {{ if ({proxy} === 'https') {{ {set} }} }}"),
                proxy,
            ),
        ] {
            let code = format!("<?php {code}");
            assert_eq!(use_of_request(&code).as_deref(), Some(found), "{code}");
        }
    }

    #[test]
    fn addresses_that_are_made_of_the_request_are_found() {
        for (value, found) in [
            (
                r#""https://{$_SERVER['HTTP_HOST']}""#,
                "$_SERVER['HTTP_HOST']",
            ),
            (r#""https://$_SERVER[HTTP_HOST]""#, "$_SERVER[HTTP_HOST]"),
            ("<<<A\n//$_SERVER[HTTP_HOST]\nA", "$_SERVER[HTTP_HOST]"),
            (
                "'https://'.$_SERVER['SERVER_NAME']",
                "$_SERVER['SERVER_NAME']",
            ),
            (
                "(isset($_SERVER['HTTPS']) ? 'https' : 'http').'://a.test'",
                "$_SERVER['HTTPS']",
            ),
            ("filter_input(INPUT_SERVER, 'HTTP_HOST')", "INPUT_SERVER"),
            ("'//'.getenv('HTTP_HOST')", "getenv('HTTP_HOST')"),
            ("address($_SERVER)", "$_SERVER"),
            ("$_SERVER[$key]", "$_SERVER"),
        ] {
            let code = format!("<?php define('WP_HOME', {value});");
            assert_eq!(use_of_request(&code).as_deref(), Some(found), "{code}");
        }
    }

    #[test]
    fn configuration_is_the_file_that_wordpress_includes() {
        let parent = tempfile::tempdir().unwrap();
        let write = |name: &str| std::fs::write(parent.path().join(name), "<?php").unwrap();
        let root = parent.path().join("blog");
        std::fs::create_dir(&root).unwrap();
        write("blog/wp-load.php");
        let missing = obstacle(&root).unwrap();
        write("wp-config.php");
        assert_eq!(obstacle(&root), None);
        write("wp-settings.php");
        assert_eq!(obstacle(&root), Some(missing));
        write("blog/wp-config.php");
        assert_eq!(obstacle(&root), None);
    }

    #[test]
    fn boot_script_repeats_the_same_statements() {
        let php = include_str!("../../../php/src/Boot/WordPressCode.php");
        for part in [VALUE, WORD, TEXT, SIGN, KEY] {
            assert!(php.contains(&format!("'{part}'")), "{part}");
        }
    }
}
