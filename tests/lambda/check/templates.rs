//! Whole templates with one mistake each: the first line of each file is what is said about it.

use super::code::{X86_64, zip};
use super::findings;

#[test]
fn mistake_of_each_whole_template_is_found() {
    let place = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lambda/check");
    let mut files: Vec<_> = std::fs::read_dir(place.join("templates"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 7);
    for file in files {
        let name = file.file_name().unwrap().display();
        let template = std::fs::read_to_string(&file).unwrap();
        let expected = template.lines().next().unwrap().trim_start_matches("# ");
        let handler = "<?php return fn (array $event) => $event;";
        let said = findings(&template, "", |dir| {
            std::fs::write(dir.join("lambda.php"), handler).unwrap();
            let packed = [("app/lambda.php", handler)];
            zip(&dir.join("function.zip"), X86_64, &packed);
        });
        assert!(said.contains(expected), "{name}: {said}");
    }
}
