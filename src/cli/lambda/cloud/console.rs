//! `surus lambda console`: runs a command in the deployed function.

use std::io::Write;
use std::process::ExitCode;

use anyhow::bail;
use aws_sdk_lambda::Client;
use serde_json::{Value, json};

use super::smoke;
use crate::cli::lambda::cloud_options::Console;
use crate::cli::stdout;
use crate::observe::log;

/// Prints the command's output and exits with its status.
pub fn run(args: Console) -> anyhow::Result<ExitCode> {
    let project = args.target.project.directory()?;
    let config = args.target.load()?;
    let name = args.target.function_name(&project, &config);
    let alias = args.alias.as_ref().unwrap_or(&config.deploy.alias);
    let answer = crate::cli::block_on(async {
        let sdk = args.target.connect(&config).await?;
        let event = json!({ "command": line(&args.command) });
        smoke::invoke(&Client::new(&sdk), &name, alias, &event).await
    })?;
    let result: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
    let (Some(status), Some(output)) = (result["exitCode"].as_i64(), result["output"].as_str())
    else {
        if answer.error.is_some() {
            log::print(&answer.log);
            bail!(
                "the function {name} failed: {}",
                smoke::failure(&answer.payload)
            );
        }
        bail!(
            "the function {name} does not run commands; deploy it with a console as its handler: \
             [lambda] handler = \"bin/console\" (Symfony) or \"artisan\" (Laravel)"
        );
    };
    stdout::print(output);
    std::io::stdout().flush()?;
    // A fatal error or an exception is not in the output.
    let is_other = |kind: &str| kind != "CommandFailed";
    if result["errorType"].as_str().is_some_and(is_other) {
        log::print(format_args!("{}\n", smoke::failure(&answer.payload)));
    }
    // A status is a byte; others are failures.
    Ok(u8::try_from(status).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// The words as one line, which the console splits again. A single word is a line already.
fn line(words: &[String]) -> String {
    if let [line] = words {
        return line.clone();
    }
    let quoted: Vec<_> = words.iter().map(|word| quote(word)).collect();
    quoted.join(" ")
}

fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_a_line_that_the_console_splits_again() {
        let line_of = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| word.to_string()).collect();
            line(&words)
        };
        assert_eq!(line_of(&["app:report --daily"]), "app:report --daily");
        assert_eq!(
            line_of(&["mail", "--to=a@b.de", "two words", "", r#"a"b\c"#]),
            r#"mail --to=a@b.de "two words" "" "a\"b\\c""#
        );
    }
}
