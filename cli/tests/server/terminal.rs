//! The program in a pseudo-terminal, with a screen as a person sees it.

use crate::{agentctl::Agentctl, support::PATIENCE};
use portable_pty::{Child, CommandBuilder, PtySize, native_pty_system};
use std::{
    io::{Read as _, Write},
    num::NonZero,
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Instant,
};

/// What is on the screen, and whether the program has ended.
struct Screen {
    parser: vt100::Parser,
    is_closed: bool,
}

/// A running program. It is killed on drop.
pub struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    keys: Box<dyn Write + Send>,
    screen: Arc<(Mutex<Screen>, Condvar)>,
}

pub const ENTER: &str = "\r";
pub const CTRL_C: &str = "\u{3}";
pub const SHIFT_TAB: &str = "\u{1b}[Z";
pub const PAGE_UP: &str = "\u{1b}[5~";
pub const UP: &str = "\u{1b}[A";

impl Terminal {
    /// Starts a command in a terminal of 100 columns and 30 rows.
    pub fn start(cli: &Agentctl, args: &[&str]) -> Self {
        let (rows, cols) = (NonZero::new(30).unwrap(), NonZero::new(100).unwrap());
        let size = PtySize { rows: rows.get(), cols: cols.get(), ..PtySize::default() };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_agentctl"));
        command.args(args);
        command.cwd(cli.folder());
        command.env_clear();
        for (name, value) in cli.variables() {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).unwrap();
        let mut output = pair.master.try_clone_reader().unwrap();
        let keys = pair.master.take_writer().unwrap();
        let parser = vt100::Parser::new(rows, cols, 0);
        let screen = Arc::new((Mutex::new(Screen { parser, is_closed: false }), Condvar::new()));
        let shared = screen.clone();
        thread::spawn(move || {
            // The terminal must stay open as long as its output is read.
            let _master = pair.master;
            let mut bytes = [0; 4096];
            loop {
                let count = output.read(&mut bytes).unwrap_or(0);
                let mut screen = shared.0.lock().unwrap();
                screen.parser.process(&bytes[..count]);
                screen.is_closed = count == 0;
                shared.1.notify_all();
                if count == 0 {
                    return;
                }
            }
        });
        drop(pair.slave);
        Self { child, keys, screen }
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Writes a message and sends it.
    pub fn send(&mut self, text: &str) {
        self.press(text);
        self.press(ENTER);
    }

    /// Waits until the screen has this text. Returns the screen.
    #[track_caller]
    pub fn wait_for(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }

    /// Waits until the screen no longer has this text.
    #[track_caller]
    pub fn wait_without(&self, text: &str) -> String {
        self.wait(text, |screen| !screen.contains(text))
    }

    #[track_caller]
    fn wait(&self, what: &str, is_done: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut screen = self.screen.0.lock().unwrap();
        loop {
            let contents = screen.parser.screen().contents();
            if is_done(&contents) {
                return contents;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero() && !screen.is_closed, "waited for {what:?}:\n{contents}");
            screen = self.screen.1.wait_timeout(screen, left).unwrap().0;
        }
    }

    /// Waits until the program has ended. Returns its exit code, and the screen.
    pub fn end(&mut self) -> (u32, String) {
        let code = self.child.wait().unwrap().exit_code();
        let mut screen = self.screen.0.lock().unwrap();
        while !screen.is_closed {
            screen = self.screen.1.wait_timeout(screen, PATIENCE).unwrap().0;
        }
        (code, screen.parser.screen().contents())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
