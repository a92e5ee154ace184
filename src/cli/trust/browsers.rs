//! Finds the certificate stores of this user's browsers: databases of NSS. Each browser of snap or
//! Flatpak has its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A store that exists.
#[derive(Debug, PartialEq, Eq)]
pub struct BrowserStore {
    pub browser: &'static str,
    pub directory: PathBuf,
}

/// The directories of a user.
struct UserDirectories {
    home: PathBuf,
    /// `$XDG_CONFIG_HOME`.
    config: PathBuf,
    /// `$XDG_DATA_HOME`.
    data: PathBuf,
}

#[derive(Clone, Copy)]
enum Below {
    Home,
    Config,
    Data,
}

/// A star at the end is any directory.
const PLACES: [(&str, Below, &str); 11] = [
    ("Chrome, Chromium", Below::Home, ".pki/nssdb"),
    // Since Chromium 146, if the one above does not exist.
    ("Chrome, Chromium", Below::Data, "pki/nssdb"),
    ("Chromium", Below::Home, "snap/chromium/current/.pki/nssdb"),
    (
        "Chromium",
        Below::Home,
        "snap/chromium/current/.local/share/pki/nssdb",
    ),
    ("Brave", Below::Home, "snap/brave/current/.pki/nssdb"),
    (
        "Brave",
        Below::Home,
        "snap/brave/current/.local/share/pki/nssdb",
    ),
    ("Firefox", Below::Home, ".mozilla/firefox/*"),
    // Since Firefox 147, if the one above does not exist.
    ("Firefox", Below::Config, "mozilla/firefox/*"),
    (
        "Firefox",
        Below::Home,
        "snap/firefox/common/.mozilla/firefox/*",
    ),
    (
        "Firefox",
        Below::Home,
        ".var/app/org.mozilla.firefox/.mozilla/firefox/*",
    ),
    (
        "Firefox",
        Below::Home,
        ".var/app/org.mozilla.firefox/config/mozilla/firefox/*",
    ),
];

/// Flatpak's names of Chromium and its relatives.
const FLATPAKS: [(&str, &str); 5] = [
    ("Chromium", "org.chromium.Chromium"),
    ("Chrome", "com.google.Chrome"),
    ("Brave", "com.brave.Browser"),
    ("Edge", "com.microsoft.Edge"),
    ("Vivaldi", "com.vivaldi.Vivaldi"),
];

/// The stores of this user's browsers.
pub fn stores() -> Vec<BrowserStore> {
    let directories = UserDirectories::read(|name| std::env::var_os(name));
    directories.map_or_else(Vec::new, |it| it.stores())
}

impl UserDirectories {
    /// None if the user has no home directory.
    fn read(variable: impl Fn(&str) -> Option<OsString>) -> Option<UserDirectories> {
        let home = PathBuf::from(variable("HOME")?);
        // The specification of XDG ignores relative paths.
        let directory = |name: &str, usual: &str| {
            let named = variable(name).map(PathBuf::from);
            let named = named.filter(|directory| directory.is_absolute());
            named.unwrap_or_else(|| home.join(usual))
        };
        Some(UserDirectories {
            config: directory("XDG_CONFIG_HOME", ".config"),
            data: directory("XDG_DATA_HOME", ".local/share"),
            home,
        })
    }

    fn stores(&self) -> Vec<BrowserStore> {
        let mut stores = Vec::new();
        for (browser, below, place) in PLACES {
            let directory = match below {
                Below::Home => &self.home,
                Below::Config => &self.config,
                Below::Data => &self.data,
            };
            add(&mut stores, browser, directory, place);
        }
        for (browser, id) in FLATPAKS {
            let app = self.home.join(".var/app").join(id);
            for place in [".pki/nssdb", "data/pki/nssdb"] {
                add(&mut stores, browser, &app, place);
            }
        }
        stores
    }
}

/// Adds the stores of a place.
fn add(stores: &mut Vec<BrowserStore>, browser: &'static str, directory: &Path, place: &str) {
    let mut all = match place.strip_suffix("/*") {
        None => vec![directory.join(place)],
        Some(parent) => {
            let entries = std::fs::read_dir(directory.join(parent));
            let entries = entries.into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect()
        }
    };
    all.sort();
    let found = all.into_iter().filter(|it| it.join("cert9.db").is_file());
    stores.extend(found.map(|directory| BrowserStore { browser, directory }));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Makes a store, as a browser does at its first start.
    fn make(directory: &Path) {
        std::fs::create_dir_all(directory).unwrap();
        std::fs::write(directory.join("cert9.db"), "").unwrap();
    }

    fn read(variables: &[(&str, &Path)]) -> Option<UserDirectories> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        UserDirectories::read(|name| find(name).map(|(_, value)| value.as_os_str().to_owned()))
    }

    fn found(variables: &[(&str, &Path)]) -> Vec<(&'static str, PathBuf)> {
        let stores = read(variables).unwrap().stores();
        let pair = |store: BrowserStore| (store.browser, store.directory);
        stores.into_iter().map(pair).collect()
    }

    #[test]
    fn stores_of_packages_snap_and_flatpak_are_found() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        assert!(found(&[("HOME", home)]).is_empty());
        let expected = [
            ("Chrome, Chromium", ".pki/nssdb"),
            ("Chrome, Chromium", ".local/share/pki/nssdb"),
            ("Chromium", "snap/chromium/current/.pki/nssdb"),
            ("Chromium", "snap/chromium/current/.local/share/pki/nssdb"),
            ("Brave", "snap/brave/current/.pki/nssdb"),
            ("Firefox", ".mozilla/firefox/a.default"),
            ("Firefox", ".mozilla/firefox/b.work"),
            ("Firefox", ".config/mozilla/firefox/c.default-release"),
            ("Firefox", "snap/firefox/common/.mozilla/firefox/d.default"),
            (
                "Firefox",
                ".var/app/org.mozilla.firefox/.mozilla/firefox/e.default",
            ),
            (
                "Firefox",
                ".var/app/org.mozilla.firefox/config/mozilla/firefox/f.new",
            ),
            ("Chromium", ".var/app/org.chromium.Chromium/.pki/nssdb"),
            ("Chrome", ".var/app/com.google.Chrome/data/pki/nssdb"),
        ];
        let expected = expected.map(|(browser, place)| (browser, home.join(place)));
        for (_, directory) in &expected {
            make(directory);
        }
        // Neither a profile without a store, nor a file, nor another program's store.
        std::fs::create_dir(home.join(".mozilla/firefox/Crash Reports")).unwrap();
        std::fs::write(home.join(".mozilla/firefox/profiles.ini"), "").unwrap();
        make(&home.join(".var/app/org.example.App/.pki/nssdb"));
        assert_eq!(found(&[("HOME", home)]), expected);
    }

    #[test]
    fn directories_of_xdg_replace_the_usual_ones_if_they_are_absolute() {
        let place = tempfile::tempdir().unwrap();
        let (home, config) = (place.path().join("home"), place.path().join("config"));
        let data = place.path().join("data");
        let (usual, named) = (
            home.join(".config/mozilla/firefox/a.default"),
            config.join("mozilla/firefox/b.default"),
        );
        let database = data.join("pki/nssdb");
        for directory in [&usual, &named, &database] {
            make(directory);
        }
        let all = [
            ("HOME", &*home),
            ("XDG_CONFIG_HOME", &*config),
            ("XDG_DATA_HOME", &*data),
        ];
        let expected = [("Chrome, Chromium", database), ("Firefox", named)];
        assert_eq!(found(&all), expected);
        let relative = [("HOME", &*home), ("XDG_CONFIG_HOME", Path::new("config"))];
        assert_eq!(found(&relative), [("Firefox", usual)]);
        assert!(read(&[("XDG_CONFIG_HOME", &*config)]).is_none());
    }
}
