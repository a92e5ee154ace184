//! `surus lambda invoke`: runs one event in a fresh environment.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::emulated::Options;
use crate::emulator::{Emulator, InvokeRequest};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// JSON file with the event; - for standard input
    event: PathBuf,
    /// Directory of the application
    #[arg(default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Stream the response, like InvokeWithResponseStream
    #[arg(long)]
    stream: bool,
    #[command(flatten)]
    options: Options,
}

/// Prints the response to stdout and the log to stderr. Fails if the function fails.
pub fn run(args: Args) -> anyhow::Result<()> {
    let event = read(&args.event)?;
    let function = args.options.function(&args.dir)?;
    crate::cli::block_on(async {
        let emulator = Emulator::start(function).await?;
        let request = InvokeRequest {
            is_streamed: args.stream,
            ..InvokeRequest::from(event)
        };
        let invocation = emulator.invoke(request).await;
        emulator.stop().await;
        let (output, failed) = match invocation.result {
            Ok(answer) => (answer, None),
            Err(error) => (error.body.clone(), Some(error)),
        };
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(&output)?;
        if !output.ends_with(b"\n") {
            stdout.write_all(b"\n")?;
        }
        stdout.flush()?;
        match failed {
            None => Ok(()),
            Some(error) => bail!("the function failed: {}", error.kind),
        }
    })
}

fn read(event: &Path) -> anyhow::Result<Vec<u8>> {
    let text = if event == Path::new("-") {
        let mut text = Vec::new();
        std::io::stdin().read_to_end(&mut text)?;
        text
    } else {
        std::fs::read(event).with_context(|| format!("cannot read {}", event.display()))?
    };
    let checked: Result<serde::de::IgnoredAny, _> = serde_json::from_slice(&text);
    checked.with_context(|| {
        format!(
            "{} is not JSON, but every event of Lambda is",
            event.display()
        )
    })?;
    Ok(text)
}
