//! Which PHP extensions does an application need, and in which order are they loaded?

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::elf::{self, Symbols};

/// What most applications use without saying so. Those that this machine does not have are left out.
const USUAL: &[&str] = &[
    "ctype",
    "curl",
    "dom",
    "fileinfo",
    "iconv",
    "mbstring",
    "opcache",
    "pdo",
    "phar",
    "posix",
    "simplexml",
    "tokenizer",
    "xml",
    "xmlreader",
    "xmlwriter",
    "zip",
];

/// An extension that is a file of its own, and not part of PHP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extension {
    pub name: String,
    pub file: PathBuf,
    /// php.ini loads it with `zend_extension`.
    pub is_zend: bool,
}

/// What an application needs.
#[derive(Debug)]
pub struct Chosen {
    /// In the order in which PHP must load them.
    pub load: Vec<Extension>,
    /// What PHP loads on this machine, and nobody has asked for.
    pub left_out: Vec<String>,
}

/// Chooses from `directory`: what `project` requires, what is `asked` for, the usual, and what those need. `loaded` is what PHP has on
/// this machine.
pub fn choose(
    project: &Path,
    directory: &Path,
    asked: &[String],
    loaded: &[String],
) -> anyhow::Result<Chosen> {
    let file = |name: &str| directory.join(format!("{name}.so"));
    let loaded: BTreeSet<String> = loaded.iter().map(|name| file_name(name)).collect();
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    let required = required(project)?;
    let by_name = asked
        .iter()
        .map(|name| (name, "--extension or [package] extensions"));
    for (name, who) in required
        .iter()
        .map(|(name, who)| (name, who.as_str()))
        .chain(by_name)
    {
        let name = file_name(name);
        if file(&name).is_file() {
            wanted.insert(name);
        } else if !loaded.contains(&name) {
            bail!(
                "the extension {name}, which {who} asks for, is neither part of PHP nor in {}; install it (Debian: \
                 apt-get install php-{name})",
                directory.display()
            );
        }
    }
    wanted.extend(
        USUAL
            .iter()
            .map(|name| name.to_string())
            .filter(|name| file(name).is_file()),
    );
    let symbols = symbols(directory)?;
    let load = in_order(&wanted, &symbols)
        .into_iter()
        .map(|name| Extension {
            file: file(&name),
            is_zend: symbols[&name].offered.contains("zend_extension_entry"),
            name,
        })
        .collect::<Vec<_>>();
    let left_out = loaded
        .into_iter()
        .filter(|name| {
            file(name).is_file() && !load.iter().any(|extension| extension.name == *name)
        })
        .collect();
    Ok(Chosen { load, left_out })
}

/// The names of what `project` requires, what is `asked` for, and the usual.
pub fn wanted(project: &Path, asked: &[String]) -> anyhow::Result<BTreeSet<String>> {
    let required = required(project)?
        .into_iter()
        .map(|(name, _)| file_name(&name));
    let asked = asked.iter().map(|name| file_name(name));
    let usual = USUAL.iter().map(|name| name.to_string());
    Ok(required.chain(asked).chain(usual).collect())
}

/// The name of an extension's file: `Zend OPcache` and `zend-opcache` are opcache.so.
fn file_name(name: &str) -> String {
    let name = name.to_ascii_lowercase().replace(' ', "-");
    match name.strip_prefix("zend-") {
        Some(rest) => rest.to_string(),
        None => name,
    }
}

/// The `ext-` of composer.json and of the packages of composer.lock, each with who requires it.
fn required(project: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    let mut add = |json: &serde_json::Value, who: &str| {
        let names = json["require"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name);
        let names = names.filter_map(|name| name.strip_prefix("ext-"));
        all.extend(names.map(|name| (name.to_string(), who.to_string())));
    };
    if let Some(json) = read_json(&project.join("composer.json"))? {
        add(&json, "composer.json");
    }
    if let Some(json) = read_json(&project.join("composer.lock"))? {
        for package in json["packages"].as_array().into_iter().flatten() {
            add(package, package["name"].as_str().unwrap_or("composer.lock"));
        }
    }
    Ok(all)
}

fn read_json(path: &Path) -> anyhow::Result<Option<serde_json::Value>> {
    match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text)
            .map(Some)
            .with_context(|| format!("{} is not JSON", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// The symbols of every extension there.
fn symbols(directory: &Path) -> anyhow::Result<BTreeMap<String, Symbols>> {
    let mut all = BTreeMap::new();
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot read {} (PHP's extension_dir)", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "so")
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
        {
            all.insert(name.to_string(), elf::symbols(&path)?);
        }
    }
    Ok(all)
}

/// Each of `wanted` behind those whose symbols it takes, which come along.
fn in_order(wanted: &BTreeSet<String>, symbols: &BTreeMap<String, Symbols>) -> Vec<String> {
    let mut offers: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, of) in symbols {
        // Every extension offers get_module; nobody takes it.
        offers.extend(
            of.offered
                .iter()
                .map(|symbol| (symbol.as_str(), name.as_str())),
        );
    }
    fn visit<'a>(
        name: &'a str,
        symbols: &'a BTreeMap<String, Symbols>,
        offers: &BTreeMap<&str, &'a str>,
        done: &mut Vec<String>,
        open: &mut Vec<&'a str>,
    ) {
        if done.iter().any(|other| other == name) || open.contains(&name) {
            return;
        }
        open.push(name);
        let taken = symbols
            .get(name)
            .into_iter()
            .flat_map(|symbols| &symbols.taken);
        let needed: BTreeSet<&str> = taken
            .filter_map(|symbol| offers.get(symbol.as_str()).copied())
            .collect();
        for other in needed {
            visit(other, symbols, offers, done, open);
        }
        open.pop();
        done.push(name.to_string());
    }
    let mut done = Vec::new();
    for name in wanted {
        visit(name, symbols, &offers, &mut done, &mut Vec::new());
    }
    done
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(offered: &[&str], taken: &[&str]) -> Symbols {
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        Symbols {
            offered: set(offered),
            taken: set(taken),
        }
    }

    #[test]
    fn an_extension_comes_behind_those_that_it_needs() {
        let symbols = BTreeMap::from([
            (
                "dom".to_string(),
                of(&["get_module", "dom_node"], &["xmlNewDoc"]),
            ),
            ("mysqlnd".into(), of(&["get_module", "mysqlnd_init"], &[])),
            ("pdo".into(), of(&["get_module", "pdo_register"], &[])),
            (
                "pdo_mysql".into(),
                of(&["get_module"], &["pdo_register", "mysqlnd_init"]),
            ),
            ("xsl".into(), of(&["get_module"], &["dom_node"])),
        ]);
        let wanted = ["pdo_mysql", "xsl"].map(str::to_string).into();
        assert_eq!(
            in_order(&wanted, &symbols),
            ["mysqlnd", "pdo", "pdo_mysql", "dom", "xsl"]
        );
    }

    #[test]
    fn names_are_those_of_files() {
        for (name, file) in [
            ("Zend OPcache", "opcache"),
            ("zend-opcache", "opcache"),
            ("PDO", "pdo"),
            ("SimpleXML", "simplexml"),
        ] {
            assert_eq!(file_name(name), file);
        }
    }

    #[test]
    fn what_composer_requires_is_found_in_the_lock_file_too() {
        let dir = tempfile::tempdir().unwrap();
        assert!(required(dir.path()).unwrap().is_empty());
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write(
            "composer.json",
            r#"{"require": {"php": ">=8.2", "ext-intl": "*"}, "require-dev": {"ext-xdebug": "*"}}"#,
        );
        write(
            "composer.lock",
            r#"{"packages": [{"name": "a/b", "require": {"ext-gd": "*"}}], "packages-dev": [{"name": "c/d", "require": {"ext-pcov": "*"}}]}"#,
        );
        let pair = |name: &str, who: &str| (name.to_string(), who.to_string());
        assert_eq!(
            required(dir.path()).unwrap(),
            [pair("intl", "composer.json"), pair("gd", "a/b")]
        );
        write("composer.lock", "{");
        let error = format!("{:#}", required(dir.path()).unwrap_err());
        assert!(error.contains("composer.lock is not JSON"), "{error}");
    }

    #[test]
    fn an_extension_that_is_missing_is_named_with_who_asks_for_it() {
        let (project, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let asked = ["redis".to_string()];
        let choose = |loaded: &[String]| choose(project.path(), directory.path(), &asked, loaded);
        let error = choose(&[]).unwrap_err().to_string();
        assert!(
            error.contains("the extension redis, which --extension"),
            "{error}"
        );
        // Part of PHP: nothing to bring along.
        assert!(choose(&["Redis".to_string()]).unwrap().load.is_empty());
    }
}
