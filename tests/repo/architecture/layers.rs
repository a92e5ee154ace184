//! Reads the layers of ARCHITECTURE.md, and tests that the lists of allowed imports follow them.

use std::collections::BTreeMap;

use super::{CRATES, MAY_USE};

const ARCHITECTURE: &str = include_str!("../../../ARCHITECTURE.md");

/// The layers of a directory such as `src/`, lowest first. Modules of one place do not use each
/// other.
pub fn layers(directory: &str) -> Vec<Vec<String>> {
    let section = ARCHITECTURE.split("\n## Layers\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut items = section.split("\n- ").skip(1);
    let start = format!("`{directory}`: ");
    let item = items.find_map(|item| item.strip_prefix(&start)).unwrap();
    let item = item.replace("\n  ", " ");
    // Sentences may follow the layers.
    let layers = item.split(". ").next().unwrap().trim();
    let names = |place: &str| place.split(',').map(|name| name.trim().into()).collect();
    layers.split('→').map(names).collect()
}

/// The place of each module.
fn places(directory: &str) -> BTreeMap<String, usize> {
    let numbered = layers(directory).into_iter().enumerate();
    numbered
        .flat_map(|(place, names)| names.into_iter().map(move |name| (name, place)))
        .collect()
}

#[test]
fn allowed_imports_of_modules_follow_the_layers_of_architecture() {
    let places = places("src/");
    for name in places.keys() {
        let is_known = name == "cli" || MAY_USE.iter().any(|(module, _)| module == name);
        assert!(
            is_known,
            "ARCHITECTURE.md has the module `{name}`, which does not exist"
        );
    }
    for (module, may_use) in MAY_USE {
        for used in *may_use {
            if let (Some(from), Some(to)) = (places.get(*module), places.get(*used)) {
                let is_below = to < from;
                assert!(
                    is_below,
                    "MAY_USE of tests/repo/architecture.rs allows `{module}` to use `{used}`, \
                     which is not to its left in ARCHITECTURE.md"
                );
            }
        }
    }
}

#[test]
fn allowed_imports_of_crates_follow_the_layers_of_architecture() {
    let places = places("crates/");
    for (name, may_use) in CRATES {
        for used in may_use {
            let used = used.trim_start_matches("surus-");
            assert!(
                places[used] < places[name],
                "CRATES allows `{name}` to use `{used}`, which is not to its left in \
                 ARCHITECTURE.md"
            );
        }
    }
    assert!(
        places
            .keys()
            .all(|name| CRATES.iter().any(|(other, _)| other == name))
    );
}
