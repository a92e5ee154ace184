//! The timeline as text for a terminal.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{ProfiledFile, Timeline, millis};

/// The width of the bars in columns.
const WIDTH: u64 = 40;

/// How many packages and files are listed.
const NAMED: usize = 10;

/// Formats the whole timeline.
pub fn format(timeline: &Timeline) -> String {
    let mut text = format!(
        "{}: {} until ready, {} for the first event, {} for the second\n\n",
        timeline.title,
        millis(timeline.ready),
        millis(timeline.first),
        millis(timeline.second),
    );
    let longest = timeline
        .phases
        .iter()
        .map(|phase| phase.end - phase.start)
        .max()
        .unwrap_or(1)
        .max(1);
    let _ = writeln!(text, "{:>10} {:>10}", "at", "takes");
    for phase in &timeline.phases {
        let takes = phase.end - phase.start;
        let bar = "█".repeat(usize::try_from((takes * WIDTH).div_ceil(longest)).unwrap_or(0));
        let _ = writeln!(
            text,
            "{:>10} {:>10}  {:<width$}  {}",
            millis(phase.start),
            millis(takes),
            bar,
            phase.name,
            width = WIDTH as usize
        );
    }
    text.push_str(&files(timeline));
    text
}

fn files(timeline: &Timeline) -> String {
    let files = &timeline.files;
    if files.is_empty() {
        return "\nno PHP file was read\n".into();
    }
    let compiled = files.iter().filter(|file| file.is_compiled).count();
    let mut text = format!(
        "\n{} PHP files: {compiled} compiled, {} from OPcache; {} of the above\n",
        files.len(),
        files.len() - compiled,
        millis(files.iter().map(takes).sum()),
    );
    if timeline.is_cut {
        text.push_str("the trace was full; further files are not counted\n");
    }
    let mut packages: BTreeMap<&str, (u64, usize)> = BTreeMap::new();
    for file in files {
        let (time, count) = packages.entry(package(&file.path)).or_default();
        *time += takes(file);
        *count += 1;
    }
    let mut packages: Vec<_> = packages.into_iter().collect();
    packages.sort_by(|a, b| b.1.0.cmp(&a.1.0).then_with(|| a.0.cmp(b.0)));
    for (name, (time, count)) in packages.iter().take(NAMED) {
        let word = if *count == 1 { "file" } else { "files" };
        let _ = writeln!(text, "{:>10} {count:>6} {word:<5}  {name}", millis(*time));
    }
    let mut slowest: Vec<&ProfiledFile> = files.iter().collect();
    slowest.sort_by(|a, b| takes(b).cmp(&takes(a)).then_with(|| a.path.cmp(&b.path)));
    text.push_str("the slowest\n");
    for file in slowest.iter().take(NAMED) {
        let _ = writeln!(
            text,
            "{:>10}               {}",
            millis(takes(file)),
            file.path
        );
    }
    text
}

fn takes(file: &ProfiledFile) -> u64 {
    file.end.saturating_sub(file.start)
}

/// `vendor/a/b/src/X.php` → `vendor/a/b`; `src/X/Y.php` → `src`; `/usr/share/php/Twig/X.php` →
/// `/usr/share/php/Twig`.
fn package(path: &str) -> &str {
    let depth = if path.starts_with('/') {
        5
    } else if path.starts_with("vendor/") {
        3
    } else {
        1
    };
    match path.match_indices('/').nth(depth - 1) {
        Some((end, _)) => &path[..end],
        None => path
            .rsplit_once('/')
            .map_or("(the project)", |(directory, _)| directory),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::timeline;
    use super::*;

    #[test]
    fn text_lists_phases_files_and_packages() {
        let text = super::format(&timeline());
        for expected in [
            "shop on rewind: 0.1 ms until ready, 0.1 ms for the first event, 0.0 ms for the \
             second\n",
            "framework and application\n",
            "6 PHP files: 5 compiled, 1 from OPcache",
            "  2 files  vendor/a/b\n",
            "  1 file   src\n",
        ] {
            assert!(text.contains(expected), "{expected} in\n{text}");
        }
    }

    #[test]
    fn file_path_maps_to_its_package() {
        for (path, name) in [
            ("vendor/a/b/src/X.php", "vendor/a/b"),
            ("vendor/autoload.php", "vendor"),
            ("src/X/Y.php", "src"),
            ("index.php", "(the project)"),
            ("/usr/share/php/Twig/Node/X.php", "/usr/share/php/Twig"),
            ("/srv/x.php", "/srv"),
        ] {
            assert_eq!(package(path), name, "{path}");
        }
    }
}
