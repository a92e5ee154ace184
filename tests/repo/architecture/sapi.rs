//! Tests that C files include only headers of their own layer or of lower ones, in no circle.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The layers of `sapi/`, lowest first, as ARCHITECTURE.md has them. Modules of one layer do not
/// include each other.
fn layers() -> Vec<Vec<String>> {
    let mut layers = super::layers::layers("sapi/");
    for name in layers.iter_mut().flatten() {
        // `run.c` is both the file and its layer.
        name.truncate(name.trim_end_matches(".c").len());
    }
    layers
}

#[test]
fn c_files_include_no_header_of_a_higher_layer() {
    let mut wrong = Vec::new();
    let layers = layers();
    let layer = |file: &str| {
        let is_it = |layer: &Vec<String>| layer.iter().any(|name| name == room(file));
        layers.iter().position(is_it)
    };
    for (file, includes) in files() {
        for included in includes {
            let (from, to) = (layer(&file), layer(&included));
            if to > from || (to == from && room(&file) != room(&included)) {
                wrong.push(format!("{file} includes {included}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn c_files_have_no_circular_includes() {
    // A header and the file that implements it are one unit.
    let mut units: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, includes) in files() {
        let own = unit(&file);
        let others = includes.iter().map(|name| unit(name));
        let others: Vec<_> = others.filter(|name| *name != own).collect();
        units.entry(own).or_default().extend(others);
    }
    // Takes away units that include only units that were taken away before.
    loop {
        let free: Vec<String> = units
            .iter()
            .filter(|(_, includes)| !includes.iter().any(|name| units.contains_key(name)))
            .map(|(name, _)| name.clone())
            .collect();
        if free.is_empty() {
            break;
        }
        units.retain(|name, _| !free.contains(name));
    }
    assert!(units.is_empty(), "circles among {:?}", units.keys());
}

#[test]
fn every_folder_of_sapi_is_a_layer() {
    let (files, names) = (files(), layers().concat());
    for (file, _) in &files {
        assert!(
            names.iter().any(|name| name == room(file)),
            "say in ARCHITECTURE.md (Layers) where sapi/{file} belongs"
        );
    }
    for name in names {
        assert!(
            files.iter().any(|(file, _)| room(file) == name),
            "ARCHITECTURE.md (Layers) has {name}, which is not in sapi/"
        );
    }
}

#[test]
fn include_guards_are_named_after_their_headers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("sapi");
    for (file, _) in files() {
        let Some(name) = file.strip_suffix(".h") else {
            continue;
        };
        let guard = format!("SURUS_{}_H", name.replace('/', "_").to_uppercase());
        let text = std::fs::read_to_string(root.join(&file)).unwrap();
        let lines = format!("#ifndef {guard}\n#define {guard}\n");
        assert!(text.contains(&lines), "{file} lacks {guard}");
    }
}

/// `php/opcache.c` → `php`, `run.c` → `run`.
fn room(file: &str) -> &str {
    match file.rsplit_once('/') {
        Some((folder, _)) => folder,
        None => file.split('.').next().unwrap(),
    }
}

/// `php/opcache.c`, `php/opcache.h` → `php/opcache`.
fn unit(file: &str) -> String {
    file.rsplit_once('.').unwrap().0.to_string()
}

/// Every C file and header of `sapi/`, with the project's own headers that it includes.
fn files() -> Vec<(String, Vec<String>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("sapi");
    let mut found = Vec::new();
    let mut waiting: Vec<PathBuf> = vec![root.clone()];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let includes = text
                .lines()
                .filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'))
                .map(String::from)
                .collect();
            let name = path.strip_prefix(&root).unwrap();
            found.push((name.display().to_string(), includes));
        }
    }
    assert!(found.len() > 50, "no sources in sapi/");
    found
}
