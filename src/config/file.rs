//! Reads `surus.toml`.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, anyhow};

use super::type_error::explain;
use super::{Config, sites};

/// Reads and checks the file that `open` opens, and returns it open. An error names the file, the
/// line and the allowed values.
pub fn read(
    path: &Path,
    open: impl FnOnce(&Path) -> io::Result<File>,
) -> anyhow::Result<(toml::Table, File)> {
    let (text, file) = open(path)
        .and_then(text)
        .with_context(|| format!("cannot read {}", path.display()))?;
    // Only for its error, which knows the line; the environment is merged into the table.
    toml::from_str::<Config>(&text)
        .and_then(|_| Ok((toml::from_str(&text)?, file)))
        .map_err(|error| {
            let start = sites::start_of(error.message(), &text)
                .or_else(|| Some(error.span()?.start))
                .unwrap_or_default();
            let line = 1 + text[..start.min(text.len())].matches('\n').count();
            let message = explain(error.message(), text.lines().nth(line - 1));
            anyhow!("{}:{line}: {message}", path.display())
        })
}

/// The longest file that is read. Its owner is checked only afterwards, and may be another user.
const MAX_LEN: u64 = 1 << 20;

/// The text of a configuration file.
pub(super) fn text(mut file: File) -> io::Result<(String, File)> {
    let mut text = String::new();
    (&mut file).take(MAX_LEN + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_LEN {
        return Err(io::Error::other("it is longer than 1 MiB"));
    }
    Ok((text, file))
}

/// The first setting whose value may be a secret, also of a site or a pool.
pub(super) fn secret_in(table: &toml::Table) -> Option<&'static str> {
    table.iter().find_map(|(name, value)| match name.as_str() {
        "env" => {
            let variables = value.as_table()?;
            (!variables.is_empty()).then_some("env")
        }
        "hmac_key" => Some("hmac_key"),
        // amqp://USER:PASSWORD@HOST
        "source" if value.as_str().is_some_and(|it| it.contains('@')) => Some("source"),
        "telemetry" => value.get("headers").map(|_| "telemetry.headers"),
        _ => match value {
            toml::Value::Table(table) => secret_in(table),
            toml::Value::Array(values) => values
                .iter()
                .filter_map(toml::Value::as_table)
                .find_map(secret_in),
            _ => None,
        },
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_may_be_secrets_are_found_in_every_section() {
        let found = |text: &str| secret_in(&toml::from_str(text).unwrap());
        for (text, secret) in [
            ("env.PASSWORD = 'x'", "env"),
            ("[[site]]\nhost = 'a'\n[site.env]\nPASSWORD = 'x'", "env"),
            ("pool.work.env.PASSWORD = 'x'", "env"),
            (
                "acme.authorities = ['letsencrypt', { key_id = 'a', hmac_key = 'x' }]",
                "hmac_key",
            ),
            ("telemetry.headers.authorization = 'x'", "telemetry.headers"),
            ("[[queue]]\nsource = 'amqp://a:b@c/'", "source"),
        ] {
            assert_eq!(found(text), Some(secret), "{text}");
        }
        let none = "[env]\n[[queue]]\nsource = 'redis://a'\n[[route]]\nheaders.A = 'b'\n\
            [engine]\nclear_env = false\n[telemetry]\n";
        assert_eq!(found(none), None);
    }

    #[test]
    fn section_after_those_of_the_example_is_rejected_with_the_remedy() {
        let example = include_str!("../../surus.toml.example");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("surus.toml");
        let read_with = |text: String| {
            std::fs::write(&path, text).unwrap();
            read(&path, |path| File::open(path))
        };
        let sites = "[[site]]\nhost = 'a.example'\n";
        let line = example.lines().count() + 1;
        for (section, remedy) in [
            ("[acme]\ndomains = 'a.example'\n", "write these keys there"),
            (sites, "put `#` in front of [site]"),
        ] {
            let error = read_with(format!("{example}{section}")).unwrap_err();
            let error = error.to_string();
            let is_explained = error.contains(&format!(":{line}: ")) && error.contains(remedy);
            assert!(is_explained, "{error}");
        }
        let without = example.replace("\n[site]\n", "\n#[site]\n");
        read_with(without + sites).unwrap();
    }

    #[test]
    fn configuration_of_any_length_is_not_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("surus.toml");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        let error = read(&path, |path| File::open(path)).unwrap_err();
        assert!(format!("{error:#}").contains("longer than 1 MiB"));
    }
}
