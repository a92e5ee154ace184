//! Advice for failed starts that PHP's own messages do not explain.

/// Advice about PHP's messages.
pub(super) fn advice(messages: &str) -> Option<&'static str> {
    ADVICE
        .iter()
        .find(|(words, _)| messages.contains(words))
        .map(|(_, advice)| *advice)
}

const ADVICE: &[(&str, &str)] = &[
    (
        "Unable to create lock file",
        "OPcache makes its lock file in /tmp, which must be writable; [php] \
        \"opcache.lockfile_path\" names another directory",
    ),
    (
        "\"opcache.preload_user\" has not been defined",
        "preloading does not run as root; [php] \"opcache.preload_user\" names the user, usually \
         that of engine.user",
    ),
    (
        "Preloading failed to getpwnam",
        "[php] \"opcache.preload_user\" names a user that does not exist",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_depends_on_php_messages_only() {
        let messages = "Fatal Error Unable to create lock file: Read-only file system (30)";
        assert!(advice(messages).is_some_and(|advice| advice.contains("opcache.lockfile_path")));
        let messages = "Fatal Error Preloading failed to getpwnam(\"nosuch\")";
        assert!(advice(messages).is_some_and(|advice| advice.contains("does not exist")));
        assert_eq!(advice("PHP Fatal error:  Uncaught Exception: x"), None);
    }
}
