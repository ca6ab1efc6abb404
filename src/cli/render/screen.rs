//! The one place that writes to standard output and standard error.

use std::fmt;
use std::io::{self, IsTerminal as _, Write};

use serde::Serialize;

use super::color::{Paint, Tone};
use super::table::Table;
use super::text;
use crate::config::{ColorChoice, Surroundings};
use crate::error::{Context as _, Error, ErrorKind, Result};

/// The version of everything that is written as JSON.
const SCHEMA: u32 = 1;

/// What a terminal is taken to be wide if it does not tell.
const USUAL_WIDTH: u16 = 80;

/// Standard output for data, standard error for talk.
///
/// A reader of the data that has gone away is no error: from then on [`Self::is_closed`] holds and
/// what is written vanishes, so that a command which only prints just ends, and one that follows
/// something can stop. Any other failure to write data is an error, and what was not written is
/// never taken for written: call [`Self::flush`] at the end. Failures to talk are ignored, as there
/// is nobody left to tell.
pub struct Screen {
    data: Box<dyn Write + Send>,
    talk: Box<dyn Write + Send>,
    width: Option<u16>,
    paint: Paint,
    talk_paint: Paint,
    /// The width of the line that stands in the talk, where that is a terminal.
    standing: Option<usize>,
    closed: bool,
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Screen")
            .field("width", &self.width)
            .field("paint", &self.paint)
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

impl Screen {
    /// Returns the process's own streams.
    pub fn of_process(choice: ColorChoice, around: &Surroundings) -> Self {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let terminal = stdout.is_terminal();
        // Asks the terminal itself; zero columns is what a serial line says.
        let width = comfy_table::Table::new()
            .width()
            .filter(|columns| *columns > 0)
            .unwrap_or(USUAL_WIDTH);
        Self {
            width: terminal.then_some(width),
            paint: Paint::decide(choice, around, terminal),
            talk_paint: Paint::decide(choice, around, stderr.is_terminal()),
            standing: stderr.is_terminal().then_some(0),
            data: Box::new(io::BufWriter::new(stdout)),
            talk: Box::new(stderr),
            closed: false,
        }
    }

    /// Returns a screen over other streams; `width` is that of a terminal, `None` for a pipe.
    pub fn over(
        data: impl Write + Send + 'static,
        talk: impl Write + Send + 'static,
        width: Option<u16>,
        paint: Paint,
    ) -> Self {
        Self {
            data: Box::new(data),
            talk: Box::new(talk),
            width,
            paint,
            talk_paint: paint,
            standing: None,
            closed: false,
        }
    }

    /// Returns whether the data goes to a terminal.
    pub const fn is_terminal(&self) -> bool {
        self.width.is_some()
    }

    /// Returns the terminal's width in columns, if the data goes to one.
    pub const fn width(&self) -> Option<u16> {
        self.width
    }

    /// Returns how data is coloured.
    pub const fn paint(&self) -> Paint {
        self.paint
    }

    /// Returns whether whoever read the data has gone away.
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    ///
    /// `General` if they cannot be written; not if nobody reads any more.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        let written = self.data.write_all(bytes);
        self.judge(written)
    }

    /// Writes a line of data, which must be safe to show.
    ///
    /// # Errors
    ///
    /// As for [`Self::raw`].
    pub fn line(&mut self, line: &str) -> Result<()> {
        self.raw(line.as_bytes())?;
        self.raw(b"\n")
    }

    /// Writes a table: fitted to a terminal, tab-separated to anything else.
    ///
    /// # Errors
    ///
    /// As for [`Self::raw`].
    pub fn table(&mut self, table: &Table) -> Result<()> {
        let text = match self.width {
            Some(width) => table.fitted(width, self.paint),
            None => table.tabbed(),
        };
        self.raw(text.as_bytes())
    }

    /// Writes one JSON object with the schema's version before its own fields: a struct or a map
    /// (lists are fields of it). Indented on a terminal, one line elsewhere.
    ///
    /// # Errors
    ///
    /// As for [`Self::raw`]; `Internal` for a value that is no JSON object.
    pub fn json(&mut self, value: &impl Serialize) -> Result<()> {
        let indented = self.is_terminal();
        self.document(value, indented)
    }

    /// Writes one line of a stream of JSON objects, and sends it off at once.
    ///
    /// # Errors
    ///
    /// As for [`Self::json`].
    pub fn json_line(&mut self, value: &impl Serialize) -> Result<()> {
        self.document(value, false)?;
        self.flush()
    }

    /// Writes a line that is JSON already, with its version in it.
    ///
    /// # Errors
    ///
    /// As for [`Self::raw`].
    pub fn json_text(&mut self, json: &str) -> Result<()> {
        self.line(&visible(json))
    }

    fn document(&mut self, value: &impl Serialize, indented: bool) -> Result<()> {
        let document = Document {
            schema: SCHEMA,
            value,
        };
        let json = if indented {
            serde_json::to_string_pretty(&document)
        } else {
            serde_json::to_string(&document)
        }
        .or_fail(ErrorKind::Internal, || "cannot write JSON".to_owned())?;
        self.line(&visible(&json))
    }

    /// Sends off what has been written.
    ///
    /// # Errors
    ///
    /// As for [`Self::raw`].
    pub fn flush(&mut self) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        let flushed = self.data.flush();
        self.judge(flushed)
    }

    fn judge(&mut self, outcome: io::Result<()>) -> Result<()> {
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            outcome => outcome.or_fail(ErrorKind::General, || {
                "cannot write to standard output".to_owned()
            }),
        }
    }

    /// Says something to the person: a line on standard error, which must be safe to show. What has
    /// been written as data goes first.
    pub fn talk(&mut self, line: &str) {
        self.say(&format!("{line}\n"));
    }

    /// Says how far something long has come, in one line that stands until the next thing is said;
    /// nothing unless a terminal shows the talk.
    pub fn progress(&mut self, line: &str) {
        if let Some(standing) = self.standing {
            let width = text::width(line);
            let rest = standing.saturating_sub(width);
            self.say(&format!("\r{line}{:rest$}", ""));
            self.standing = Some(width);
        }
    }

    /// Tells the person what went wrong, why, and what to do. Each part may hold text of users: it
    /// is made safe here.
    pub fn error(&mut self, error: &Error) {
        let paint = self.talk_paint;
        let mut message = format!(
            "{} {}\n",
            paint.tone(Tone::Bad, "error:"),
            text::shown(error.what())
        );
        for cause in error.causes() {
            message.push_str(&format!("  caused by: {}\n", text::shown(cause)));
        }
        for hint in error.hints() {
            let label = paint.tone(Tone::Active, "hint:");
            message.push_str(&format!("{label} {}\n", text::shown(hint)));
        }
        if error.kind() == ErrorKind::Internal {
            let label = paint.tone(Tone::Active, "hint:");
            message.push_str(&format!(
                "{label} this is a bug in fairq; please report it\n"
            ));
        }
        self.say(&message);
    }

    fn say(&mut self, message: &str) {
        // Order counts where both streams are one terminal. A failure here shows again at the end.
        if !self.closed {
            self.data.flush().ok();
        }
        // What stands is written over first. No escape for that: a dumb terminal knows none.
        let width = self.standing.unwrap_or(0);
        let over = if width > 0 && !message.starts_with('\r') {
            self.standing = Some(0);
            format!("\r{:width$}\r", "")
        } else {
            String::new()
        };
        // In one write, so that lines of several processes do not mix.
        let message = format!("{over}{message}");
        self.talk.write_all(message.as_bytes()).ok();
        self.talk.flush().ok();
    }
}

#[derive(Serialize)]
struct Document<'v, T> {
    schema: u32,
    #[serde(flatten)]
    value: &'v T,
}

/// Escapes what JSON allows in a string but a terminal would act upon.
fn visible(json: &str) -> String {
    let mut visible = String::with_capacity(json.len());
    let mut before = None;
    for letter in json.chars() {
        if letter == '\n' || text::is_plain(letter, before) {
            visible.push(letter);
        } else {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                visible.push_str(&format!("\\u{unit:04x}"));
            }
        }
        before = Some(letter);
    }
    visible
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::cli::render::table::Column;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Shared {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn screen(width: Option<u16>) -> (Screen, Shared, Shared) {
        let (data, talk) = (Shared::default(), Shared::default());
        let screen = Screen::over(data.clone(), talk.clone(), width, Paint::NONE);
        (screen, data, talk)
    }

    #[derive(Serialize)]
    struct Reply {
        steps: Vec<&'static str>,
    }

    #[test]
    fn json_is_one_object_with_its_version_first() {
        let reply = Reply {
            steps: vec!["a1", "esc \x1b bidi \u{202e} c1 \u{9b} tag \u{e0041}"],
        };
        let (mut pipe, data, _) = screen(None);
        pipe.json(&reply).unwrap();
        let escaped = r#""esc \u001b bidi \u202e c1 \u009b tag \udb40\udc41""#;
        let expected = format!("{{\"schema\":1,\"steps\":[\"a1\",{escaped}]}}\n");
        assert_eq!(data.text(), expected);
        let (mut terminal, shown, _) = screen(Some(80));
        terminal.json(&reply).unwrap();
        assert!(shown.text().lines().count() > 3);
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(&shown.text()), read(&data.text()));
        assert_eq!(read(&data.text())["steps"][1], reply.steps[1]);
        let error = pipe.json(&[1, 2]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
    }

    #[test]
    fn a_table_is_cut_only_on_a_terminal() {
        let mut table = Table::new([Column::words("ID"), Column::text("COMMAND")]);
        let long = "x".repeat(200);
        table.row(["a1", &long]);
        let (mut pipe, piped, _) = screen(None);
        pipe.table(&table).unwrap();
        assert_eq!(piped.text(), format!("ID\tCOMMAND\na1\t{long}\n"));
        let (mut terminal, shown, _) = screen(Some(40));
        terminal.table(&table).unwrap();
        assert!(shown.text().lines().all(|line| text::width(line) <= 40));
    }

    #[test]
    fn a_reader_that_went_away_is_a_quiet_success() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut screen = Screen::over(writer, io::sink(), None, Paint::NONE);
        assert!(!screen.is_closed());
        screen.line("nobody hears this").unwrap();
        assert!(screen.is_closed());
        screen.line("nor this").unwrap();
        screen.flush().unwrap();
    }

    #[test]
    fn a_full_disk_is_an_error_of_exit_code_one() {
        let full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let mut screen = Screen::over(io::BufWriter::new(full), io::sink(), None, Paint::NONE);
        screen.line("data").unwrap();
        let error = screen.flush().unwrap_err();
        assert_eq!(error.kind().exit_code(), 1);
        assert!(error.what().contains("standard output"), "{error}");
    }

    #[test]
    fn an_error_is_told_in_three_parts_and_safely() {
        let (mut screen, data, talk) = screen(None);
        let error = Error::new(ErrorKind::Busy, "cannot open \x1b[2Jshard 2")
            .caused_by(&io::Error::other("database is\nlocked"))
            .hint("nothing was lost");
        screen.error(&error);
        assert_eq!(
            talk.text(),
            "error: cannot open \\x1b[2Jshard 2\n  caused by: database is\\nlocked\n\
             hint: nothing was lost\n"
        );
        assert_eq!(data.text(), "");
    }

    #[test]
    fn an_internal_error_says_that_it_is_our_bug() {
        let (mut screen, _, talk) = screen(None);
        screen.error(&Error::new(ErrorKind::Internal, "a slot without a shard"));
        assert!(talk.text().contains("bug in fairq"), "{}", talk.text());
    }

    #[test]
    fn data_goes_before_the_talk_that_follows_it() {
        let both = Shared::default();
        let data = io::BufWriter::new(both.clone());
        let mut screen = Screen::over(data, both.clone(), None, Paint::NONE);
        screen.line("a1").unwrap();
        screen.talk("1 step put in");
        assert_eq!(both.text(), "a1\n1 step put in\n");
    }
}
