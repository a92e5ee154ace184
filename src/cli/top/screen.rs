//! The terminal of `surus top`: handles keys and signals, and restores the terminal in any case.

use std::thread;

use anyhow::Context;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::snapshots::Snapshots;
use super::view::{Order, View};

/// Shows snapshots until the user quits.
pub async fn run(snapshots: Snapshots) -> anyhow::Result<()> {
    // Before the terminal changes: from now on these signals do not end the process.
    let signals = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let [mut interrupt, mut terminate, mut hangup] = signals.map(signal);
    let (interrupt, terminate, hangup) = (interrupt.as_mut(), terminate.as_mut(), hangup.as_mut());
    let (Ok(interrupt), Ok(terminate), Ok(hangup)) = (interrupt, terminate, hangup) else {
        anyhow::bail!("cannot watch for signals");
    };
    // A panic restores the terminal, too.
    let mut terminal = Restored(ratatui::try_init().context("cannot use this terminal")?);
    tokio::select! {
        shown = show(&mut terminal.0, snapshots) => shown,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        _ = hangup.recv() => Ok(()),
    }
}

/// A terminal that is as it was before when this is dropped.
struct Restored(DefaultTerminal);

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

async fn show(terminal: &mut DefaultTerminal, mut snapshots: Snapshots) -> anyhow::Result<()> {
    let mut events = events();
    let mut view = View::default();
    loop {
        terminal
            .draw(|frame| view.draw(frame))
            .context("cannot write to the terminal")?;
        tokio::select! {
            snapshot = snapshots.next() => view.add(snapshot?),
            event = events.recv() => match event {
                Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    if !obey(&mut view, key) {
                        return Ok(());
                    }
                }
                Some(_) => {}
                // The terminal was closed.
                None => return Ok(()),
            },
        }
    }
}

/// The user's keys and changes of the terminal's size. The thread ends with the process.
fn events() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(16);
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Returns false if the user quits.
fn obey(view: &mut View, key: KeyEvent) -> bool {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c' | 'd') if is_control => return false,
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('t') => view.sort(Order::Time),
        KeyCode::Char('p') => view.sort(Order::Pid),
        KeyCode::Char('s') => view.sort(Order::Served),
        KeyCode::Char('m') => view.sort(Order::Memory),
        KeyCode::Up | KeyCode::Char('k') => view.scroll(-1),
        KeyCode::Down | KeyCode::Char('j') => view.scroll(1),
        KeyCode::PageUp => view.scroll(-10),
        KeyCode::PageDown => view.scroll(10),
        _ => {}
    }
    true
}
