//! Splits the commands of documents into words, as far as documents need a shell.

/// The words of each command, without comments, redirections, assignments and `sudo`.
pub fn commands(text: &str) -> Vec<Vec<String>> {
    let joined = text.replace("\\\n", " ");
    joined.lines().flat_map(of_line).collect()
}

fn of_line(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut is_target = false;
    for word in words(line) {
        match &*word {
            "|" | "&&" | "||" | ";" | "&" => commands.push(Vec::new()),
            ">" | ">>" | "<" => is_target = true,
            _ if is_target => is_target = false,
            _ => commands.last_mut().unwrap().push(word),
        }
    }
    for command in &mut commands {
        let is_before = |word: &String| word == "sudo" || is_assignment(word);
        let begin = command.iter().position(|word| !is_before(word));
        command.drain(..begin.unwrap_or(command.len()));
    }
    commands.retain(|command| !command.is_empty());
    commands
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name);
    let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    !name.is_empty() && name.chars().all(is_name)
}

fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    // `$(…)` stays one word.
    let mut depth = 0;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ' | '\t') if depth == 0 => words.extend(word.take()),
            (None, c) => {
                depth += i32::from(c == '(') - i32::from(c == ')');
                word.get_or_insert_default().push(c);
            }
        }
    }
    words.extend(word);
    words
}

#[test]
fn commands_are_split_as_by_a_shell() {
    let text = "A=1 sudo x 'b c' \"d\" # e\ny $(uname -m)/z > f | g\\\n  h=i\n\n";
    let expected = [
        vec!["x", "b c", "d"],
        vec!["y", "$(uname -m)/z"],
        vec!["g", "h=i"],
    ];
    assert_eq!(commands(text), expected);
}
