//! Shows how far `surus bench app` is: lines, and a bar below them on a terminal.

use std::io::{IsTerminal, Write, stderr};

use indicatif::{ProgressBar, ProgressStyle};

pub struct Steps {
    /// Missing without a terminal.
    bar: Option<ProgressBar>,
}

impl Steps {
    pub fn new(steps: usize) -> Steps {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(steps as u64);
            let template = "{bar:24} {percent:>3} %  {msg}  {elapsed} of about {duration}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar
        });
        Steps { bar }
    }

    /// Names what is done now.
    pub fn doing(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.to_string());
            bar.tick();
        }
    }

    /// Moves the bar by a step.
    pub fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// Prints a line above the bar.
    pub fn line(&self, text: &str) {
        let print = || {
            let _ = writeln!(stderr(), "{text}");
        };
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
