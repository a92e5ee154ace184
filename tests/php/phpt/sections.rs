//! Parses .phpt files.

use std::collections::BTreeMap;
use std::path::Path;

/// One of PHP's own tests.
pub struct Phpt {
    /// Relative to the source tree, with slashes.
    pub path: String,
    sections: BTreeMap<String, Vec<u8>>,
}

/// The sections for which PHP's test runner uses php-cgi instead of php.
const WEB: [&str; 8] = [
    "CGI",
    "GET",
    "POST",
    "POST_RAW",
    "PUT",
    "COOKIE",
    "GZIP_POST",
    "DEFLATE_POST",
];

impl Phpt {
    /// All web tests of a source tree, sorted by path.
    pub fn web_tests(source: &Path) -> Vec<Phpt> {
        let mut tests = Vec::new();
        let mut dirs = vec![source.to_path_buf()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(&dir).unwrap().flatten() {
                let path = entry.path();
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(path);
                } else if path.extension().is_some_and(|name| name == "phpt") {
                    let name = path.strip_prefix(source).unwrap().to_str().unwrap();
                    let test = Phpt::parse(name, &std::fs::read(&path).unwrap());
                    if test.is_web() {
                        tests.push(test);
                    }
                }
            }
        }
        tests.sort_by(|a, b| a.path.cmp(&b.path));
        tests
    }

    fn parse(path: &str, content: &[u8]) -> Phpt {
        let mut sections: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut current = None;
        for line in content.split_inclusive(|byte| *byte == b'\n') {
            match heading(line) {
                Some(name) => {
                    sections.insert(name.clone(), Vec::new());
                    current = Some(name);
                }
                None => {
                    if let Some(name) = &current {
                        sections.get_mut(name).unwrap().extend_from_slice(line);
                    }
                }
            }
        }
        Phpt {
            path: path.to_string(),
            sections,
        }
    }

    fn is_web(&self) -> bool {
        let full = |name: &str| {
            self.get(name)
                .is_some_and(|text| !text.trim_ascii().is_empty())
        };
        self.get("CGI").is_some() || WEB.iter().any(|name| full(name)) || full("EXPECTHEADERS")
    }

    pub fn get(&self, section: &str) -> Option<&[u8]> {
        self.sections.get(section).map(Vec::as_slice)
    }

    /// A text section without surrounding white space.
    pub fn text(&self, section: &str) -> Option<String> {
        let bytes = self.get(section)?;
        Some(String::from_utf8_lossy(bytes).trim().to_string())
    }

    /// The test's directory in the source tree.
    pub fn dir(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(dir, _)| dir)
    }

    /// The file name of the test's script.
    pub fn script(&self) -> String {
        let name = self.path.rsplit('/').next().unwrap();
        format!("{}.php", name.trim_end_matches(".phpt"))
    }
}

/// `--NAME--` alone on its line.
fn heading(line: &[u8]) -> Option<String> {
    let name = line
        .trim_ascii_end()
        .strip_prefix(b"--")?
        .strip_suffix(b"--")?;
    let fits = |byte: &u8| byte.is_ascii_uppercase() || *byte == b'_';
    let named = !name.is_empty() && name.iter().all(fits);
    named.then(|| String::from_utf8_lossy(name).into_owned())
}

#[test]
fn section_ends_at_the_next_heading() {
    let test = Phpt::parse(
        "a/b.phpt",
        b"--TEST--\nx\n--GET--\na=1\n--FILE--\n<?php\n--$x--;\n--EXPECT--\ny",
    );
    assert_eq!(test.text("GET").as_deref(), Some("a=1"));
    assert_eq!(test.text("FILE").as_deref(), Some("<?php\n--$x--;"));
    assert!(test.is_web());
    assert_eq!((test.dir(), test.script().as_str()), ("a", "b.php"));
}
