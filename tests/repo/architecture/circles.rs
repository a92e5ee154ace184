//! Tests that no modules of a crate use each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use super::sources;

#[test]
fn modules_have_no_circular_imports() {
    let inside = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/crates")).unwrap();
    let names = inside.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let crates = names.map(|name| format!("crates/{name}/src"));
    let mut found = BTreeMap::new();
    for root in crates.chain(["src".into(), "lab/src".into()]) {
        let modules = Modules::of(&sources(&[&root]), &root);
        found.insert(root, circles(&modules.uses()));
    }
    found.retain(|_, circles| !circles.is_empty());
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn circles_are_found_through_lists_children_and_reexports() {
    let file = |name: &str, text: &str| (format!("src/{name}.rs"), text.to_string());
    let found = |files: &[(String, String)]| circles(&Modules::of(files, "src").uses());
    let circle = |names: &[&str]| -> BTreeSet<Vec<String>> {
        BTreeSet::from([names.iter().map(|name| name.to_string()).collect()])
    };
    let a = file("a", "use crate::{b::{X, Y}, d};");
    let without = [a.clone(), file("b", "use crate::c::Z;"), file("c", "")];
    assert_eq!(found(&without), BTreeSet::new());
    let with = [
        a.clone(),
        file("b", "fn f() { crate::c::g(); }"),
        file("c/mod", "pub use e::A;"),
        file("c/e", "use super::super::a::B;"),
        file("d", "use crate::c::A;"),
    ];
    assert_eq!(found(&with), circle(&["a", "c::e", "d"]));
    // Comments and tests do not count. A module and its children may use each other.
    let tests = "// use crate::a::X;\n#[cfg(test)]\nmod tests {\n    use crate::a::X;\n}\n";
    assert_eq!(found(&[a, file("b", tests)]), BTreeSet::new());
    let family = [file("c/mod", "use e::A;"), file("c/e", "use super::B;")];
    assert_eq!(found(&family), BTreeSet::new());
    // A circle through a third module counts.
    let through = [
        file("c/mod", "use crate::d::X;"),
        file("d", "use crate::c::e::Y;"),
        file("c/e", "use super::B;"),
    ];
    assert_eq!(found(&through), circle(&["c", "c::e", "d"]));
}

pub(super) type Path = Vec<String>;

pub(super) struct Modules {
    code: BTreeMap<Path, String>,
    /// `pub use`: the path that it makes, and the one that it means.
    reexports: BTreeMap<Path, Path>,
}

impl Modules {
    /// Reads the files below the directory that a crate begins in, without their tests.
    pub(super) fn of(files: &[(String, String)], root: &str) -> Modules {
        let mut files = files.to_vec();
        files.retain(|(file, _)| !file.ends_with("/tests.rs") && !file.contains("/tests/"));
        for (_, text) in &mut files {
            *text = without_tests(text);
        }
        Modules::with_tests(&files, root)
    }

    pub(super) fn with_tests(files: &[(String, String)], root: &str) -> Modules {
        let comment = Regex::new("//[^\n]*").unwrap();
        let mut code = BTreeMap::new();
        for (file, text) in files {
            let name = file.strip_prefix(root).unwrap().trim_start_matches('/');
            let mut path = split(&name.strip_suffix(".rs").unwrap().replace('/', "::"));
            path.pop_if(|last| last == "mod" || last == "lib");
            // The program.
            if path.iter().any(|name| name == "main") {
                continue;
            }
            code.insert(path, comment.replace_all(text, "").into_owned());
        }
        let mut modules = Modules {
            code,
            reexports: BTreeMap::new(),
        };
        let public = Regex::new(r"(?m)^\s*pub(?:\([^)]*\))? use ([^;]+);").unwrap();
        for (module, text) in &modules.code {
            for found in public.captures_iter(text) {
                for path in leaves(&found[1]) {
                    if let Some(meant) = modules.absolute(&path, module) {
                        let made = [&module[..], &path[path.len() - 1..]].concat();
                        modules.reexports.insert(made, meant);
                    }
                }
            }
        }
        modules
    }

    /// The modules that each uses, except for those below it: a child is a part of its parent
    /// (ARCHITECTURE.md, "Layers").
    pub(super) fn uses(&self) -> BTreeMap<Path, BTreeSet<Path>> {
        let imports = Regex::new(r"(?m)^\s*(pub(?:\([^)]*\))? )?use ([^;]+);").unwrap();
        let inline = Regex::new(r"(?:^|[^\w:.])((?:r#)?[a-z_]\w*(?:::\w+)+)").unwrap();
        let mut uses = BTreeMap::new();
        for (module, text) in &self.code {
            let mut paths: Vec<Path> = imports
                .captures_iter(text)
                .filter(|found| found.get(1).is_none())
                .flat_map(|found| leaves(&found[2]))
                .collect();
            let rest = imports.replace_all(text, "");
            paths.extend(inline.captures_iter(&rest).map(|found| split(&found[1])));
            let used: BTreeSet<Path> = paths
                .iter()
                .filter_map(|path| self.owner(self.absolute(path, module)?))
                .filter(|used| !used.starts_with(module))
                .collect();
            uses.insert(module.clone(), used);
        }
        uses
    }

    /// The modules below the crate's root that each module uses or re-exports.
    pub(super) fn tops(&self) -> BTreeMap<Path, BTreeSet<String>> {
        let mut uses = self.uses();
        for (made, meant) in &self.reexports {
            let used = uses.get_mut(&made[..made.len() - 1]).unwrap();
            used.extend(self.owner(meant.clone()));
        }
        let tops = |used: BTreeSet<Path>| used.into_iter().filter_map(|path| path.first().cloned());
        let uses = uses.into_iter();
        uses.map(|(module, used)| (module, tops(used).collect()))
            .collect()
    }

    /// The path from the crate's root, if it is one of this crate.
    fn absolute(&self, path: &Path, module: &Path) -> Option<Path> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module, rest].concat()),
            "super" => {
                let ups = path.iter().take_while(|name| *name == "super").count();
                let above = module.len().checked_sub(ups)?;
                Some([&module[..above], &path[ups..]].concat())
            }
            _ => {
                let child = [&module[..], &path[..1]].concat();
                let is_child = self.code.contains_key(&child);
                is_child.then(|| [&module[..], path].concat())
            }
        }
    }

    /// The module in which this path ends, where its name was made.
    fn owner(&self, mut path: Path) -> Option<Path> {
        for _ in 0..5 {
            let made = (1..=path.len())
                .rev()
                .find(|end| self.reexports.contains_key(&path[..*end]));
            let Some(end) = made else { break };
            let meant = [&self.reexports[&path[..end]], &path[end..]].concat();
            if meant == path {
                break;
            }
            path = meant;
        }
        let ends = (0..=path.len()).rev();
        let mut prefixes = ends.map(|end| path[..end].to_vec());
        prefixes.find(|prefix| self.code.contains_key(prefix))
    }
}

/// The code that the program has too. As rustfmt writes it, an item ends on its first line, or with
/// a bracket below its first character.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim_start() != "#[cfg(test)]" {
            kept += line;
            kept.push('\n');
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let is_mark = |line: &&str| line.trim_start().starts_with(['#', '/']);
        let first = lines.by_ref().find(|line| !is_mark(line));
        if first.is_some_and(|line| !line.ends_with([',', ';', '}'])) {
            let is_end = |line: &str| line.strip_prefix(indent).is_some_and(is_bracket);
            lines.by_ref().find(|line| is_end(line));
        }
    }
    kept
}

fn is_bracket(line: &str) -> bool {
    ["}", "};", ");", "];"].contains(&line)
}

#[test]
fn items_of_tests_are_no_code_of_the_program() {
    let program = "use a::A;\n\nfn f() {\n    g();\n}\n";
    let items = [
        "use b::B;",
        "mod support;",
        "/// For one test.\nb: b::B,",
        "const NAMES: [&str; 2] = [\n    \"b\",\n    \"c\",\n];",
        "#[allow(dead_code)]\npub fn h(\n    b: b::B,\n) -> b::C {\n    b.c()\n}",
        "impl b::B for A {\n    fn b(&self) {}\n}",
        "mod tests {\n    use b::B;\n\n    fn t() {\n        b();\n    }\n}",
    ];
    for item in items {
        let text = format!("use a::A;\n\n#[cfg(test)]\n{item}\nfn f() {{\n    g();\n}}\n");
        assert_eq!(without_tests(&text), program, "{item}");
    }
    let method =
        "impl A {\n    #[cfg(test)]\n    fn b() {\n        b();\n    }\n\n    fn a() {}\n}\n";
    assert_eq!(without_tests(method), "impl A {\n\n    fn a() {}\n}\n");
}

fn split(path: &str) -> Path {
    path.split("::").map(|name| name.trim().into()).collect()
}

/// `a::{b, c::{d as e, self}}` → `a::b`, `a::c::d`, `a::c::self`.
fn leaves(tree: &str) -> Vec<Path> {
    let tree = tree.trim();
    let Some((before, list)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap();
        return vec![split(name)];
    };
    let list = list.trim_end().strip_suffix('}').unwrap();
    let (mut depth, mut items) = (0, vec![String::new()]);
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(String::new());
                continue;
            }
            _ => {}
        }
        items.last_mut().unwrap().push(c);
    }
    items.retain(|item| !item.trim().is_empty());
    items
        .iter()
        .flat_map(|item| leaves(&format!("{}{}", before.trim(), item.trim())))
        .collect()
}

/// The largest sets of modules of which each uses each, perhaps through others.
fn circles(uses: &BTreeMap<Path, BTreeSet<Path>>) -> BTreeSet<Vec<String>> {
    let reached: BTreeMap<&Path, BTreeSet<&Path>> = uses
        .keys()
        .map(|module| {
            let mut reached = BTreeSet::new();
            let mut waiting = vec![module];
            while let Some(next) = waiting.pop() {
                for used in uses.get(next).into_iter().flatten() {
                    if reached.insert(used) {
                        waiting.push(used);
                    }
                }
            }
            (module, reached)
        })
        .collect();
    let each = reached.iter().filter(|(module, to)| to.contains(*module));
    each.map(|(module, to)| {
        let back = to.iter().filter(|other| reached[*other].contains(module));
        back.map(|other| other.join("::")).collect()
    })
    .collect()
}
