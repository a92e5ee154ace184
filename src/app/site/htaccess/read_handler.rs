//! Reads directives that select the handler or the type of files.

use super::handler::{FileHandler, MediaType, Switch, ending, not_php};
use super::parse::DirectiveNode;
use super::read::{HtaccessReader, ReadContext};
use super::rules::{Block, Problem};

impl HtaccessReader {
    pub(super) fn handler(
        &mut self,
        node: &DirectiveNode,
        words: &[String],
        block: &mut Block,
        context: &ReadContext,
    ) {
        let first = words.first().map_or("", String::as_str);
        let endings = |skip| {
            let endings = words.iter().skip(skip).map(|word| ending(word));
            endings.collect::<Vec<_>>()
        };
        let switch = match node.name.as_str() {
            "sethandler" => Switch::Set(FileHandler::named(first)),
            "forcetype" if first.eq_ignore_ascii_case("none") => Switch::Type(None),
            "forcetype" => Switch::Type(Some(MediaType::named(first))),
            "addhandler" => Switch::AddHandler(FileHandler::named(first), endings(1)),
            "addtype" => Switch::AddType(MediaType::named(first), endings(1)),
            "removehandler" => Switch::RemoveHandler(endings(0)),
            _ => Switch::RemoveType(endings(0)),
        };
        if switch.handler() == Some(FileHandler::Unknown) {
            self.report(Problem {
                line: node.line,
                what: not_php(&format!("{} {first}", node.name)),
                about: context.about.clone(),
                closes: false,
                is_logged: true,
            });
        }
        block.handlers.push(switch);
    }
}
