//! Chooses the PHP extensions of an application and their load order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::elf::{self, Symbols};

/// Extensions that most applications use without declaring them; those missing on this machine are
/// skipped.
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

/// An extension in a file of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extension {
    pub name: String,
    pub file: PathBuf,
    /// Whether php.ini loads it with `zend_extension`.
    pub is_zend: bool,
}

/// The extensions of a package.
#[derive(Debug)]
pub struct Chosen {
    /// In the order in which PHP must load them.
    pub load: Vec<Extension>,
    /// Extensions that PHP loads on this machine but the package does not need.
    pub left_out: Vec<String>,
}

/// Chooses from `directory`: the extensions that `project` requires, the `requested` ones, the
/// usual ones, and their dependencies. `loaded` lists the extensions of this machine's PHP.
pub fn choose(
    project: &Path,
    directory: &Path,
    requested: &[String],
    loaded: &[String],
) -> anyhow::Result<Chosen> {
    let file = |name: &str| directory.join(format!("{name}.so"));
    let loaded: BTreeSet<String> = loaded.iter().map(|name| file_name(name)).collect();
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    let required = required(project)?;
    let by_name = requested
        .iter()
        .map(|name| (name, "--extension or [package] extensions"));
    for (name, origin) in required
        .iter()
        .map(|(name, origin)| (name, origin.as_str()))
        .chain(by_name)
    {
        let name = file_name(name);
        if file(&name).is_file() {
            wanted.insert(name);
        } else if !loaded.contains(&name) {
            bail!(
                "the extension {name}, which {origin} asks for, is neither part of PHP nor in {}; \
                 install it (Debian: apt-get install php-{name})",
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
            is_zend: symbols[&name].defined.contains("zend_extension_entry"),
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

/// The names of the extensions that `project` requires, of the `requested` ones, and of the usual
/// ones.
pub fn wanted(project: &Path, requested: &[String]) -> anyhow::Result<BTreeSet<String>> {
    let required = required(project)?
        .into_iter()
        .map(|(name, _)| file_name(&name));
    let requested = requested.iter().map(|name| file_name(name));
    let usual = USUAL.iter().map(|name| name.to_string());
    Ok(required.chain(requested).chain(usual).collect())
}

/// The file name of an extension: `Zend OPcache` and `zend-opcache` are both opcache.so.
fn file_name(name: &str) -> String {
    let name = name.to_ascii_lowercase().replace(' ', "-");
    match name.strip_prefix("zend-") {
        Some(rest) => rest.to_string(),
        None => name,
    }
}

/// The `ext-` requirements of composer.json and of the packages in composer.lock, each with its
/// origin.
fn required(project: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    let mut add = |json: &serde_json::Value, origin: &str| {
        let names = json["require"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name);
        let names = names.filter_map(|name| name.strip_prefix("ext-"));
        all.extend(names.map(|name| (name.to_string(), origin.to_string())));
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

/// The symbols of every extension in the directory.
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

/// Orders `wanted` so that each extension follows those whose symbols it imports; adds the missing
/// ones.
fn in_order(wanted: &BTreeSet<String>, symbols: &BTreeMap<String, Symbols>) -> Vec<String> {
    let mut definers: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, of) in symbols {
        // Every extension defines get_module, but none imports it.
        definers.extend(
            of.defined
                .iter()
                .map(|symbol| (symbol.as_str(), name.as_str())),
        );
    }
    fn visit<'a>(
        name: &'a str,
        symbols: &'a BTreeMap<String, Symbols>,
        definers: &BTreeMap<&str, &'a str>,
        done: &mut Vec<String>,
        open: &mut Vec<&'a str>,
    ) {
        if done.iter().any(|other| other == name) || open.contains(&name) {
            return;
        }
        open.push(name);
        let imported = symbols
            .get(name)
            .into_iter()
            .flat_map(|symbols| &symbols.imported);
        let needed: BTreeSet<&str> = imported
            .filter_map(|symbol| definers.get(symbol.as_str()).copied())
            .collect();
        for other in needed {
            visit(other, symbols, definers, done, open);
        }
        open.pop();
        done.push(name.to_string());
    }
    let mut done = Vec::new();
    for name in wanted {
        visit(name, symbols, &definers, &mut done, &mut Vec::new());
    }
    done
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(defined: &[&str], imported: &[&str]) -> Symbols {
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        Symbols {
            defined: set(defined),
            imported: set(imported),
        }
    }

    #[test]
    fn extension_follows_its_dependencies() {
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
    fn extension_name_maps_to_its_file() {
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
    fn requirements_come_from_composer_json_and_lock() {
        let dir = tempfile::tempdir().unwrap();
        assert!(required(dir.path()).unwrap().is_empty());
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write(
            "composer.json",
            r#"{"require": {"php": ">=8.2", "ext-intl": "*"}, "require-dev": {"ext-xdebug": "*"}}"#,
        );
        write(
            "composer.lock",
            r#"{
                "packages": [{"name": "a/b", "require": {"ext-gd": "*"}}],
                "packages-dev": [{"name": "c/d", "require": {"ext-pcov": "*"}}]
            }"#,
        );
        let pair = |name: &str, origin: &str| (name.to_string(), origin.to_string());
        assert_eq!(
            required(dir.path()).unwrap(),
            [pair("intl", "composer.json"), pair("gd", "a/b")]
        );
        write("composer.lock", "{");
        let error = format!("{:#}", required(dir.path()).unwrap_err());
        assert!(error.contains("composer.lock is not JSON"), "{error}");
    }

    #[test]
    fn missing_extension_is_named_with_its_origin() {
        let (project, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let requested = ["redis".to_string()];
        let choose =
            |loaded: &[String]| choose(project.path(), directory.path(), &requested, loaded);
        let error = choose(&[]).unwrap_err().to_string();
        assert!(
            error.contains("the extension redis, which --extension"),
            "{error}"
        );
        // Built into PHP, so there is no file to package.
        assert!(choose(&["Redis".to_string()]).unwrap().load.is_empty());
    }
}
