//! Reads Markdown: files, headings, links and code blocks.

use std::path::{Path, PathBuf};

use regex::Regex;

/// A fenced block of code.
pub struct Block {
    pub language: String,
    pub text: String,
    /// `docs/guides/lambda.md:12`, where its fence is.
    pub place: String,
}

/// A Markdown file of the repository.
pub struct Page {
    /// From the repository's root, such as `docs/guides/lambda.md`.
    pub name: String,
    pub text: String,
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Markdown file that people of the project have written.
pub fn pages() -> Vec<Page> {
    let mut found = Vec::new();
    let mut waiting = vec![root().to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            if path.is_dir() {
                let foreign = ["target", "fuzz/corpus", "fuzz/artifacts"];
                let is_hidden = name.starts_with('.') && name != ".github";
                if !is_hidden && !foreign.contains(&&*name) && !name.ends_with("vendor") {
                    waiting.push(path);
                }
            } else if name.ends_with(".md") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push(Page { name, text });
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(found.len() > 40, "only {} Markdown files", found.len());
    found
}

/// The pages below `docs/`.
pub fn documents() -> Vec<Page> {
    let mut pages = pages();
    pages.retain(|page| page.name.starts_with("docs/"));
    pages
}

impl Page {
    pub fn directory(&self) -> PathBuf {
        root().join(&self.name).parent().unwrap().to_path_buf()
    }

    /// The lines outside of code blocks, each with its number.
    pub fn prose(&self) -> Vec<(usize, &str)> {
        let mut is_code = false;
        let mut lines = Vec::new();
        for (index, line) in self.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                is_code = !is_code;
            } else if !is_code {
                lines.push((index + 1, line));
            }
        }
        assert!(!is_code, "{}: a code block without an end", self.name);
        lines
    }

    /// The anchors of the headings, as GitHub makes them.
    pub fn anchors(&self) -> Vec<String> {
        let link = Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap();
        let mut anchors: Vec<String> = Vec::new();
        for (_, line) in self.prose() {
            let Some(heading) = line.strip_prefix('#') else {
                continue;
            };
            let heading = heading.trim_start_matches('#').trim();
            let heading = link.replace_all(heading, "$1").to_lowercase();
            let kept = heading
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            let anchor = kept.collect::<String>().replace(' ', "-");
            let same = anchors.iter().filter(|other| **other == anchor).count();
            anchors.push(match same {
                0 => anchor,
                n => format!("{anchor}-{n}"),
            });
        }
        anchors
    }

    /// The targets of links and images, each with its line.
    pub fn links(&self) -> Vec<(usize, String)> {
        // The text of a link may begin on the line before.
        let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
        let code = Regex::new(r"`[^`]*`").unwrap();
        let mut links = Vec::new();
        for (number, line) in self.prose() {
            let line = code.replace_all(line, "``");
            links.extend(
                link.captures_iter(&line)
                    .map(|found| (number, found[1].to_string())),
            );
        }
        links
    }

    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut open: Option<(usize, Block)> = None;
        for (index, line) in self.text.lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            match (&mut open, line.trim_start().strip_prefix("```")) {
                (None, Some(language)) => {
                    let block = Block {
                        language: language.trim().to_string(),
                        text: String::new(),
                        place: format!("{}:{}", self.name, index + 1),
                    };
                    open = Some((indent, block));
                }
                (Some(_), Some(_)) => blocks.extend(open.take().map(|(_, block)| block)),
                (Some((indent, block)), None) => {
                    block.text += line.get(*indent..).unwrap_or_default();
                    block.text.push('\n');
                }
                (None, None) => {}
            }
        }
        blocks
    }
}

#[test]
fn anchors_are_those_of_github() {
    let page = Page {
        name: "page.md".into(),
        text: "# `[http]`\n## A, b: [c](d)\n```sh\n# no heading\n```\n## A, b: c\n".into(),
    };
    assert_eq!(page.anchors(), ["http", "a-b-c", "a-b-c-1"]);
}

/// Tests read only the commands in fences.
#[test]
fn code_blocks_have_fences() {
    let mut indented = Vec::new();
    for page in pages() {
        let mut after_empty = true;
        for (line, text) in page.prose() {
            let is_code = text.starts_with("    ") || text.starts_with('\t');
            let is_item = text.trim_start().starts_with(['-', '*', '+']);
            if after_empty && is_code && !is_item {
                indented.push(format!("{}:{line}", page.name));
            }
            after_empty = text.trim().is_empty();
        }
    }
    assert!(indented.is_empty(), "{indented:#?}");
}
