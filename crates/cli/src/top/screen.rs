//! The terminal: takes keys, signals and looks as they come, draws, and gives the terminal back as
//! it was, whatever happens.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};
use pghot_daemon::config::Options;
use pghot_linux::SysRoot;
use ratatui::crossterm::event::{self, Event as TerminalEvent, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::draw::picture;
use super::keys::Act;
use super::look::Look;
use super::model::Model;
use super::table::Table;
use super::view::View;
use super::watch::{Focus, PERIOD, Seen, Watcher};

/// What the picture follows.
enum Event {
    Seen(Box<Seen>),
    Terminal(TerminalEvent),
    /// A signal asks for the end.
    Stop,
    /// A thread ended, and should not have.
    Failed(&'static str),
}

/// Tells of the end of its thread, if that ends by itself or by a panic.
struct Ending(Sender<Event>, &'static str);

impl Drop for Ending {
    fn drop(&mut self) {
        // Nobody listens after the end.
        let _ = self.0.send(Event::Failed(self.1));
    }
}

/// Gives the terminal back.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing, and nobody could be told.
        let _ = ratatui::try_restore();
    }
}

/// Draws until the user or a signal ends it.
pub fn run(options: Options, look: Look) -> Result<()> {
    let (events, inbox) = mpsc::channel();
    let (turn, focuses) = mpsc::channel();
    take_signals(events.clone())?;
    let no_terminal = |error: io::Error| anyhow!("cannot use this terminal: {error}");
    let _restore = Restore;
    // From here on a panic, in any thread, restores the terminal before its message is printed.
    let mut terminal = ratatui::try_init().map_err(no_terminal)?;
    take_keys(events.clone())?;
    let watched = events.clone();
    start("watch", events, move || {
        let watcher = Watcher::new(options, SysRoot::default());
        watcher.run(&focuses, |seen| {
            watched.send(Event::Seen(Box::new(seen))).is_ok()
        });
    })?;

    let mut shown = Shown::default();
    loop {
        terminal
            .draw(|frame| picture(shown.model(), &shown.view, look, frame.buffer_mut()))
            .map_err(no_terminal)?;
        // All pending events are drawn at once, so that a slow terminal does not fall behind.
        let first = inbox.recv_timeout(2 * PERIOD).ok();
        shown.model.wait(Instant::now());
        for event in first.into_iter().chain(inbox.try_iter()) {
            match shown.take(event, look, &turn)? {
                Act::Draw => {}
                Act::Clear => terminal.clear().map_err(no_terminal)?,
                Act::Quit => return Ok(()),
            }
        }
    }
}

/// What is on the screen.
#[derive(Default)]
struct Shown {
    model: Model,
    /// What was known when the picture was paused.
    paused: Option<Model>,
    view: View,
}

impl Shown {
    fn model(&self) -> &Model {
        self.paused.as_ref().unwrap_or(&self.model)
    }

    fn take(&mut self, event: Event, look: Look, turn: &Sender<Focus>) -> Result<Act> {
        match event {
            Event::Seen(seen) => self.model.take(*seen),
            Event::Stop => return Ok(Act::Quit),
            Event::Failed(what) => {
                return Err(anyhow!(
                    "the thread `{what}` of `pghot top` ended: please report it"
                ));
            }
            Event::Terminal(TerminalEvent::Key(key)) if key.kind != KeyEventKind::Release => {
                let table = Table::of(self.model(), &self.view, look);
                let before = self.view.focus();
                let act = self.view.key(key, &table);
                if self.view.focus() != before {
                    // Nobody to tell: the thread's end is on its way to us.
                    let _ = turn.send(self.view.focus());
                }
                self.paused = match (self.view.is_paused, self.paused.take()) {
                    (true, None) => Some(self.model.clone()),
                    (true, paused) => paused,
                    (false, _) => None,
                };
                return Ok(act);
            }
            // A new size is taken at the next drawing.
            Event::Terminal(_) => {}
        }
        Ok(Act::Draw)
    }
}

fn start(
    name: &'static str,
    events: Sender<Event>,
    work: impl FnOnce() + Send + 'static,
) -> Result<()> {
    let ending = Ending(events, name);
    let thread = thread::Builder::new().name(name.into());
    let started = thread.spawn(move || {
        let _ending = ending;
        work();
    });
    started.map_err(|error| anyhow!("cannot start a thread: {error}"))?;
    Ok(())
}

/// Before the terminal is changed, so that from then on a signal ends it in good order.
fn take_signals(events: Sender<Event>) -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])
        .map_err(|error| anyhow!("cannot catch signals: {error}"))?;
    let told = events.clone();
    start("signals", events, move || {
        for _ in signals.forever() {
            let _ = told.send(Event::Stop);
        }
    })
}

fn take_keys(events: Sender<Event>) -> Result<()> {
    let told = events.clone();
    start("keys", events, move || {
        // An error means that the terminal is gone.
        while let Ok(event) = event::read() {
            if told.send(Event::Terminal(event)).is_err() {
                return;
            }
        }
    })
}
