//! Finds out whether a test runs a subcommand of `surus`: reads the test and the functions that it
//! calls.

use std::collections::BTreeSet;

use regex::Regex;

/// A test that runs a subcommand which documents use.
pub struct Elsewhere {
    pub words: &'static str,
    /// The test: its program in `tests/`, its modules, its name.
    test: &'static str,
    /// Another file with functions that the test calls.
    helpers: &'static str,
    /// Why the test does not always run: the target of the Makefile that runs it, or a sentence.
    left_out: &'static str,
}

pub const fn runs(words: &'static str, test: &'static str) -> Elsewhere {
    Elsewhere {
        words,
        test,
        helpers: "",
        left_out: "",
    }
}

impl Elsewhere {
    pub const fn with(self, helpers: &'static str) -> Elsewhere {
        Elsewhere { helpers, ..self }
    }

    pub const fn left_out(self, left_out: &'static str) -> Elsewhere {
        Elsewhere { left_out, ..self }
    }

    /// What is wrong with this entry; `read` returns the text of a file.
    pub fn problem(&self, read: impl Fn(&str) -> Option<String>) -> Option<String> {
        self.check(read).err()
    }

    fn check(&self, read: impl Fn(&str) -> Option<String>) -> Result<(), String> {
        let path: Vec<_> = self.test.split("::").collect();
        let Some((name, [program, modules @ ..])) = path.split_last() else {
            return Err(format!("no program of {}", self.test));
        };
        let mut directory = format!("tests/{program}");
        let main = read(&format!("{directory}/main.rs"));
        let mut text = main.ok_or_else(|| format!("no program {program}"))?;
        let mut around = vec![functions(&text)];
        let mut is_left_out = false;
        for module in modules {
            let declaration = format!(r"(?m)^(#\[cfg\(.*\)\]\n)?(?:pub )?mod {module};$");
            let declaration = Regex::new(&declaration).unwrap();
            let found = declaration.captures(&text);
            let found = found.ok_or_else(|| format!("no module {module} below {directory}"))?;
            is_left_out |= found.get(1).is_some();
            directory = format!("{directory}/{module}");
            let files = [format!("{directory}.rs"), format!("{directory}/mod.rs")];
            text = files.iter().find_map(|file| read(file)).unwrap_or_default();
            around.push(functions(&text));
        }
        for file in ["tests/common/mod.rs", self.helpers] {
            match read(file) {
                Some(text) => around.push(functions(&text)),
                None if file.is_empty() => {}
                None => return Err(format!("no file {file}")),
            }
        }
        let own = &around[modules.len()];
        let is_it = |function: &&Function| function.name == *name && function.has("#[test]");
        let test = own.iter().find(is_it);
        let test = test.ok_or_else(|| format!("no test {name} in {directory}"))?;

        let reached = reached(test, &around.concat());
        let is_run = reached.contains("CARGO_BIN_EXE_surus") && has_words(&reached, self.words);
        if !is_run {
            return Err(format!("{} does not run it", self.test));
        }
        is_left_out |= test.has("#[ignore") || SKIPPED.iter().any(|note| reached.contains(note));
        match (is_left_out, self.left_out) {
            (false, "") => Ok(()),
            (true, "") => Err(format!("say why {} may not run", self.test)),
            (false, reason) => Err(format!("{} always runs, unlike: {reason}", self.test)),
            (true, reason) => match reason.strip_prefix("make ") {
                Some(target) => runs_in_target(target, self.test, &read("Makefile").unwrap()),
                None => Ok(()),
            },
        }
    }
}

/// How tests say that something is missing here.
const SKIPPED: [&str; 2] = ["\"skipped: ", "\"not tested: "];

fn runs_in_target(target: &str, test: &str, makefile: &str) -> Result<(), String> {
    let recipe = makefile.split_once(&format!("\n{target}:"));
    let (_, recipe) = recipe.ok_or_else(|| format!("no target {target}"))?;
    let recipe = recipe.split("\n\n").next().unwrap_or_default();
    let (program, name) = test.split_once("::").unwrap_or_default();
    let runs = |line: &str| {
        let filter = line.split_once(&format!("--test {program} -- "));
        filter.is_some_and(|(_, filter)| name.starts_with(filter.trim()))
    };
    match recipe.lines().any(runs) {
        true => Ok(()),
        false => Err(format!("make {target} does not run {test}")),
    }
}

#[derive(Clone)]
struct Function {
    name: String,
    attributes: String,
    /// Without comments.
    text: String,
}

impl Function {
    fn has(&self, attribute: &str) -> bool {
        self.attributes.contains(attribute)
    }
}

/// The functions of a file, as rustfmt writes them.
fn functions(text: &str) -> Vec<Function> {
    let first = r"^(\s*)(?:pub(?:\([^)]*\))? )?(?:const )?(?:async )?fn (\w+)";
    let first = Regex::new(first).unwrap();
    let mut found = Vec::new();
    let mut attributes = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(start) = first.captures(line) else {
            match line.trim_start().starts_with("#[") {
                true => attributes += line,
                false => attributes.clear(),
            }
            continue;
        };
        let mut body = line[start[0].len()..].to_string();
        let end = format!("{}}}", &start[1]);
        if !line.ends_with('}') {
            let inside = lines.by_ref().take_while(|line| *line != end);
            for line in inside.filter(|line| !line.trim_start().starts_with("//")) {
                body.push('\n');
                body += line;
            }
        }
        found.push(Function {
            name: start[2].to_string(),
            attributes: std::mem::take(&mut attributes),
            text: body,
        });
    }
    found
}

/// The text of the test and of all functions that it calls, perhaps through others.
fn reached(test: &Function, all: &[Function]) -> String {
    let call = Regex::new(r"(\w+)\(").unwrap();
    let mut text = String::new();
    let mut names = BTreeSet::new();
    let mut waiting = vec![test];
    while let Some(function) = waiting.pop() {
        text += &function.text;
        for found in call.captures_iter(&function.text) {
            if names.insert(found[1].to_string()) {
                waiting.extend(all.iter().filter(|other| other.name == found[1]));
            }
        }
    }
    text
}

/// Whether each word begins a list of arguments or follows the word before it.
fn has_words(text: &str, words: &str) -> bool {
    let words: Vec<_> = words.split(' ').collect();
    let is_argument = |index: usize| {
        let begins = format!(r#"(?:\.arg\(|\[)\s*"{}""#, words[index]);
        let follows = |before: &str| format!(r#""{before}",\s*"{}""#, words[index]);
        let forms = match index.checked_sub(1) {
            Some(before) => format!("{begins}|{}", follows(words[before])),
            None => begins,
        };
        Regex::new(&forms).unwrap().is_match(text)
    };
    let in_shell = format!("$SURUS {} ", words.join(" "));
    text.contains(&in_shell) || (0..words.len()).all(is_argument)
}

#[test]
fn entries_need_a_test_that_runs_the_words_or_a_reason() {
    let read = |file: &str| {
        let text = match file {
            "Makefile" => "\nall:\n\ttrue\n\nslow: all\n\tcargo test --test x -- slow::\n\nend:\n",
            "tests/common/mod.rs" => {
                "impl Surus {\n    pub fn serve() {\n        \
                 let command = Command::new(env!(\"CARGO_BIN_EXE_surus\"));\n        \
                 command.arg(\"serve\");\n    }\n}\n"
            }
            "tests/x/main.rs" => {
                "mod a;\n#[cfg(feature = \"slow\")]\nmod slow;\n\n\
                 fn surus(args: &[&str]) {\n    \
                 Command::new(env!(\"CARGO_BIN_EXE_surus\")).args(args);\n}\n"
            }
            "tests/x/a.rs" => {
                "#[test]\nfn served() {\n    Surus::serve();\n}\n\n\
                 #[test]\nfn both() {\n    surus(&[\"work\", \"pause\"]);\n}\n\n\
                 #[test]\nfn named() {\n    // surus(&[\"work\"]);\n    says(\"work\");\n    \
                 surus(&[\"--x\", \"work\"]);\n}\n\n\
                 #[test]\nfn parsed() {\n    parse(&[\"work\", \"pause\"]);\n}\n\n\
                 #[test]\nfn skipped() {\n    surus(&[\"work\"]);\n    \
                 eprintln!(\"skipped: no broker\");\n}\n\n\
                 #[test]\n#[ignore = \"long\"]\nfn ignored() {\n    surus(&[\"work\"]);\n}\n\n\
                 fn untested() {\n    surus(&[\"work\"]);\n}\n"
            }
            "tests/x/slow/mod.rs" => "#[test]\nfn run() {\n    helper();\n}\n",
            "tests/x/other.rs" => "pub fn helper() {\n    surus(&[\"work\"]);\n}\n",
            _ => return None,
        };
        Some(text.to_string())
    };
    let helped = || runs("work", "x::slow::run").with("tests/x/other.rs");
    for fine in [
        runs("serve", "x::a::served"),
        runs("work pause", "x::a::both"),
        runs("work", "x::a::skipped").left_out("needs a broker"),
        runs("work", "x::a::ignored").left_out("takes hours"),
        helped().left_out("make slow"),
    ] {
        assert_eq!(fine.problem(read), None);
    }
    for (wrong, problem) in [
        (runs("work", "y::a::both"), "no program y"),
        (runs("work", "x::b::both"), "no module b below tests/x"),
        (runs("work", "x::a::none"), "no test none in tests/x/a"),
        (
            runs("work", "x::a::untested"),
            "no test untested in tests/x/a",
        ),
        (
            runs("work", "x::a::both").with("none.rs"),
            "no file none.rs",
        ),
        (runs("pause", "x::a::both"), "x::a::both does not run it"),
        (
            runs("work resume", "x::a::both"),
            "x::a::both does not run it",
        ),
        (runs("work", "x::a::served"), "x::a::served does not run it"),
        (runs("work", "x::a::named"), "x::a::named does not run it"),
        (runs("work", "x::a::parsed"), "x::a::parsed does not run it"),
        (
            runs("work", "x::a::skipped"),
            "say why x::a::skipped may not run",
        ),
        (
            runs("work", "x::a::ignored"),
            "say why x::a::ignored may not run",
        ),
        (helped(), "say why x::slow::run may not run"),
        (helped().left_out("make none"), "no target none"),
        (
            helped().left_out("make all"),
            "make all does not run x::slow::run",
        ),
        (
            runs("serve", "x::a::served").left_out("slow"),
            "x::a::served always runs, unlike: slow",
        ),
    ] {
        assert_eq!(wrong.problem(read).as_deref(), Some(problem));
    }
}
