//! Checks the groups of a pattern as PCRE does: names, conditions, and the length of lookbehinds.

/// The longest lookbehind.
const LONGEST: u32 = 65_535;

/// The longest name of a group.
const LONGEST_NAME: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupKind {
    /// Capturing or not.
    Plain,
    Lookahead,
    Lookbehind,
    Condition,
}

/// A group that is not closed yet. A length is None if it varies.
#[derive(Debug)]
struct Open {
    kind: GroupKind,
    /// The lengths of the alternatives before the current one.
    before: Vec<Option<u32>>,
    /// The length of the current alternative, without its last item.
    length: Option<u32>,
    last: Option<u32>,
}

impl Open {
    fn new(kind: GroupKind) -> Open {
        Open {
            kind,
            before: Vec::new(),
            length: Some(0),
            last: Some(0),
        }
    }

    /// Ends the current alternative.
    fn end(&mut self) {
        let length = sum(self.length, self.last);
        self.before.push(length);
        (self.length, self.last) = (Some(0), Some(0));
    }
}

/// The groups up to the current place of a pattern.
#[derive(Debug)]
pub(super) struct Groups {
    /// The open groups, the innermost last. The first stands for the whole pattern.
    open: Vec<Open>,
    /// The number of capturing groups.
    count: usize,
    names: Vec<String>,
    /// The groups of conditions. They may follow later in the pattern.
    conditions: Vec<String>,
}

impl Default for Groups {
    fn default() -> Groups {
        Groups {
            open: vec![Open::new(GroupKind::Plain)],
            count: 0,
            names: Vec::new(),
            conditions: Vec::new(),
        }
    }
}

impl Groups {
    /// Adds an item that matches `length` bytes.
    pub(super) fn item(&mut self, length: Option<u32>) {
        if let Some(group) = self.open.last_mut() {
            group.length = sum(group.length, group.last);
            group.last = length;
        }
    }

    /// Repeats the last item; None is a number of times that varies.
    pub(super) fn repeat(&mut self, times: Option<u32>) {
        if let Some(group) = self.open.last_mut() {
            group.last = match (group.last, times) {
                (Some(length), Some(times)) => Some(length.saturating_mul(times)),
                _ => None,
            };
        }
    }

    pub(super) fn alternative(&mut self) -> Result<(), String> {
        let Some(group) = self.open.last_mut() else {
            return Ok(());
        };
        group.end();
        match group.kind {
            GroupKind::Condition if group.before.len() > 1 => {
                Err("a condition has more than two alternatives".into())
            }
            _ => Ok(()),
        }
    }

    /// Ends the innermost group.
    pub(super) fn close(&mut self) -> Result<(), String> {
        if self.open.len() < 2 {
            return Err("`)` closes no group".into());
        }
        let Some(mut group) = self.open.pop() else {
            return Ok(());
        };
        group.end();
        let fixed = |length: &Option<u32>| length.is_some_and(|length| length <= LONGEST);
        if group.kind == GroupKind::Lookbehind && !group.before.iter().all(fixed) {
            return Err("the length of a lookbehind varies".into());
        }
        if group.kind == GroupKind::Condition && group.before.len() == 1 {
            group.before.push(Some(0));
        }
        let first = group.before.first().copied().flatten();
        let is_same = group.before.iter().all(|length| *length == first);
        self.item(match group.kind {
            GroupKind::Lookahead | GroupKind::Lookbehind => Some(0),
            GroupKind::Plain | GroupKind::Condition => first.filter(|_| is_same),
        });
        Ok(())
    }

    /// `\K`, which changes where the match begins.
    pub(super) fn check_reset(&mut self) -> Result<(), String> {
        let looks_around =
            |group: &Open| matches!(group.kind, GroupKind::Lookahead | GroupKind::Lookbehind);
        match self.open.iter().any(looks_around) {
            true => Err("`\\K` stands in a lookaround".into()),
            false => {
                self.item(Some(0));
                Ok(())
            }
        }
    }

    /// Reads what belongs to an opening parenthesis. Returns its length.
    pub(super) fn open(&mut self, rest: &str) -> Result<usize, String> {
        let Some(inside) = rest.strip_prefix('?') else {
            self.count += 1;
            self.open.push(Open::new(GroupKind::Plain));
            return Ok(0);
        };
        for (begin, kind) in [
            (":", GroupKind::Plain),
            ("|", GroupKind::Plain),
            (">", GroupKind::Plain),
            ("=", GroupKind::Lookahead),
            ("!", GroupKind::Lookahead),
            ("<=", GroupKind::Lookbehind),
            ("<!", GroupKind::Lookbehind),
        ] {
            if inside.starts_with(begin) {
                self.open.push(Open::new(kind));
                return Ok(1 + begin.len());
            }
        }
        if let Some(condition) = inside.strip_prefix('(') {
            self.open.push(Open::new(GroupKind::Condition));
            return Ok(1 + self.condition(condition)?);
        }
        for (begin, end) in [("<", '>'), ("P<", '>'), ("'", '\'')] {
            if let Some(name) = inside.strip_prefix(begin) {
                let name = name.split(end).next().unwrap_or_default();
                self.name(name)?;
                self.open.push(Open::new(GroupKind::Plain));
                return Ok(1 + begin.len() + name.len() + 1);
            }
        }
        // Calls, references and comments, which other engines check or do not have.
        let begins = |c: char| "P&#RC+".contains(c) || c.is_ascii_digit();
        if inside.starts_with(begins) {
            self.item(None);
            let end = inside.find(')').map_or(inside.len(), |end| end + 1);
            return Ok(1 + end);
        }
        self.options(inside)
    }

    /// Reads options such as `i)` and `i:`.
    fn options(&mut self, inside: &str) -> Result<usize, String> {
        let length = inside.find(|c| !"imsxnJU^-".contains(c));
        let (options, end) = inside.split_at(length.unwrap_or(inside.len()));
        let on = options.split('-').next().unwrap_or_default();
        if on.contains('x') {
            return Err("`(?x)` is not supported".into());
        }
        match end.chars().next() {
            Some(')') => self.item(Some(0)),
            Some(':') => self.open.push(Open::new(GroupKind::Plain)),
            Some(other) => return Err(format!("`{other}` cannot follow `(?{options}`")),
            None => return Ok(1 + options.len()),
        }
        Ok(2 + options.len())
    }

    /// Reads a condition behind its parenthesis. Returns its length with both parentheses.
    fn condition(&mut self, text: &str) -> Result<usize, String> {
        let (group, _) = text.split_once(')').unwrap_or((text, ""));
        let name = group
            .strip_prefix('<')
            .and_then(|name| name.strip_suffix('>'));
        let is_number = !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number && name.is_none() {
            return Err(format!("the condition `({group})` is not supported"));
        }
        self.conditions.push(name.unwrap_or(group).to_owned());
        Ok(group.len() + 2)
    }

    fn name(&mut self, name: &str) -> Result<(), String> {
        let is_word = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let begins = name.starts_with(|c: char| !c.is_ascii_digit());
        if !is_word || !begins || name.len() > LONGEST_NAME {
            return Err(format!("`{name}` cannot be the name of a group"));
        }
        if self.names.iter().any(|other| other == name) {
            return Err(format!("two groups have the name `{name}`"));
        }
        self.names.push(name.to_owned());
        self.count += 1;
        Ok(())
    }

    /// Checks at the end of the pattern that the groups of its conditions exist.
    pub(super) fn check_conditions(&self) -> Result<(), String> {
        let exists = |group: &&String| match group.parse::<usize>() {
            Ok(number) => (1..=self.count).contains(&number),
            Err(_) => self.names.contains(group),
        };
        match self.conditions.iter().find(|group| !exists(group)) {
            Some(group) => Err(format!(
                "a condition refers to the group `{group}`, which does not exist"
            )),
            None => Ok(()),
        }
    }
}

fn sum(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    Some(one?.saturating_add(other?))
}
