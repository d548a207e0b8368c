//! Long work shown while it goes on: a bar on a terminal, nothing or plain lines elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that exists only where somebody can see it.
#[derive(Debug)]
pub(crate) struct Bar(Option<ProgressBar>);

impl Bar {
    /// A bar towards `total`, or a spinner that counts when nobody knows how much there is. Without a terminal, or when
    /// JSON was asked for, there is none.
    pub(crate) fn new(total: Option<u64>, wanted: bool) -> Self {
        if !wanted || !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = match total {
            Some(total) => ProgressBar::new(total).with_style(style("{bar:20} {percent:>3}% {elapsed} {wide_msg}")),
            None => ProgressBar::new_spinner().with_style(style("{spinner} {elapsed} {wide_msg}")),
        };
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(Some(bar))
    }

    /// Whether it is drawn.
    pub(crate) const fn is_drawn(&self) -> bool {
        self.0.is_some()
    }

    /// Moves it.
    pub(crate) fn set(&self, done: u64, message: &str) {
        if let Some(bar) = &self.0 {
            bar.set_position(done);
            bar.set_message(message.to_owned());
        }
    }

    /// Says a line to stderr without tearing the bar.
    pub(crate) fn say(&self, line: &str) {
        match &self.0 {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    /// Takes it away.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates above are legal").progress_chars("━━╌")
}
