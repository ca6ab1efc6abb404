//! Makes steps of what is said of them: fills in what is not said, and refuses what cannot be meant.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::env;
use super::limits::Limits;
use super::options::{Said, StepOptions};
use super::size;
use super::terms::{Codes, OrNone};
use crate::cli::Context;
use crate::cli::select::no_such_step;
use crate::cli::words;
use crate::error::{Error, ErrorKind, Result, plain};
use crate::model::{
    Band, Command, Dependency, Due, Environment, FairnessKey, Need, NewStep, Parent, Policy, Span,
    StepId, Timestamp, Unique, Weight,
};
use crate::store::sqlite::SqliteStore;
use crate::store::{Edit, Filter, Order, Read as _, StepView};

/// The longest name, in bytes: with what stands before it, it must be a variable.
const MOST_NAME: usize = size::MOST_WORD - 64;

/// Makes the steps of one call.
pub(in crate::cli) struct Maker<'m> {
    context: &'m Context,
    /// The store, if there is one already.
    store: Option<&'m SqliteStore>,
    pub(super) now: Timestamp,
    limits: Limits,
    /// What was worked out last: of many steps, nearly all say the same.
    last_env: RefCell<Option<(env::Said, Arc<Environment>)>>,
    last_cwd: RefCell<Option<(Option<PathBuf>, PathBuf)>>,
}

impl<'m> Maker<'m> {
    pub(in crate::cli) fn new(
        context: &'m Context,
        store: Option<&'m SqliteStore>,
        now: Timestamp,
    ) -> Self {
        Self {
            context,
            store,
            now,
            limits: Limits::default(),
            last_env: RefCell::default(),
            last_cwd: RefCell::default(),
        }
    }

    /// Makes a step whose parents are stored already.
    ///
    /// # Errors
    ///
    /// `Usage` for what cannot be meant, `NotFound` for a parent that is not there.
    pub(super) fn make(&self, said: &Said, command: Command) -> Result<NewStep> {
        let (after, key_of_first) = self.stored_parents(said)?;
        if !after.is_empty() {
            self.refuse_id(&command)?;
        }
        self.make_after(said, command, after, key_of_first)
    }

    /// Refuses a command that is the next id of a list without commas: `--after a1 b2 true`.
    fn refuse_id(&self, command: &Command) -> Result<()> {
        let first = match command {
            Command::Shell(line) => Some(line),
            Command::Argv(words) => words.first(),
        };
        let Some(word) = first.and_then(|word| word.to_str()) else {
            return Ok(());
        };
        let is_program = |word: &str| {
            let path = self.context.around.vars.get(OsStr::new("PATH"));
            path.is_some_and(|path| std::env::split_paths(path).any(|dir| dir.join(word).is_file()))
        };
        if words::ids(word).is_err() || is_program(word) {
            return Ok(());
        }
        Err(usage(format!("{word} is a step, not a program")).hint(
            "ids are joined by commas (--after a1,b2), or the option is repeated; nothing was stored",
        ))
    }

    /// Makes a step that waits for these, of which the first has this key.
    pub(super) fn make_after(
        &self,
        said: &Said,
        command: Command,
        after: Vec<Dependency>,
        key_of_first: Option<FairnessKey>,
    ) -> Result<NewStep> {
        size::check(&command, "the command")?;
        let options = &said.options;
        // A step gets its name as a variable; all of them are shown in one line.
        for (what, text) in [
            ("the name", options.name.as_deref()),
            ("the flow's name", options.flow.as_deref()),
            ("the unique key", said.ties.unique.as_deref()),
        ] {
            let size = text.map_or(0, str::len);
            size::too_large(what, "in all", size, MOST_NAME)?;
        }
        let settings = &self.context.settings;
        let usual = Policy {
            grace: settings.grace,
            ..Policy::default()
        };
        Ok(NewStep {
            command,
            cwd: self.cwd(options.cwd.as_deref())?,
            env: self.env(options)?,
            band: self.band(options)?,
            key: options.key.clone().or(key_of_first).unwrap_or_default(),
            weight: options.weight.unwrap_or(Weight::ONE),
            name: options.name.clone(),
            tags: options.tag.clone(),
            flow: options.flow.clone(),
            due: match (&options.delay, &options.at, said.ties.hold) {
                (Some(delay), ..) => Due::At(self.now + *delay),
                (None, Some(at), _) => Due::At(self.context.zone.read(at, self.now)?),
                (None, None, true) => Due::Held,
                (None, None, false) => Due::Now,
            },
            after,
            unique: said.ties.unique.as_ref().map(|key| Unique {
                key: key.clone(),
                scope: said.ties.scope.unwrap_or_default(),
            }),
            policy: self.policy(options, usual)?,
        })
    }

    fn band(&self, options: &StepOptions) -> Result<Band> {
        let settings = &self.context.settings;
        options
            .band
            .as_ref()
            .map_or(Ok(settings.default_band), |word| {
                words::band(word, settings)
            })
    }

    /// Returns how a step is to be treated: as it is said, and like `usual` in all else.
    ///
    /// # Errors
    ///
    /// `Usage` for what cannot be meant.
    pub(in crate::cli) fn policy(&self, options: &StepOptions, usual: Policy) -> Result<Policy> {
        let retries = options.retries.unwrap_or(usual.retries);
        if options.retries.is_none() && retries == 0 {
            for (given, option) in [
                (options.backoff.is_some(), "--backoff"),
                (options.retry_on.is_some(), "--retry-on"),
                (options.no_retry_on.is_some(), "--no-retry-on"),
            ] {
                if given {
                    return Err(usage(format!("{option} says nothing without --retries"))
                        .hint("say how often to try again: --retries 3"));
                }
            }
        }
        if options.timeout == Some(OrNone::Some(Span::default())) {
            return Err(usage("--timeout 0: no step could run".to_owned())
                .hint("without a time-out: --timeout none"));
        }
        let mut limits = usual.limits;
        for wanted in &options.limit {
            match wanted {
                OrNone::None => limits.clear(),
                OrNone::Some(wanted) => drop(limits.insert(wanted.limit.clone(), wanted.places)),
            }
        }
        self.limits.check(self.store, &limits)?;
        let expire = match options.expire.as_deref() {
            None => usual.expire,
            Some("none") => None,
            Some(text) => Some(self.expire(text)?),
        };
        let codes = |said: &Option<OrNone<Codes>>, usual| match said {
            None => usual,
            Some(OrNone::None) => Vec::new(),
            Some(OrNone::Some(codes)) => codes.0.clone(),
        };
        Ok(Policy {
            on_lost: options.on_lost.unwrap_or(usual.on_lost),
            grace: options.grace.unwrap_or(usual.grace),
            leave_group: options.leave_group.unwrap_or(usual.leave_group),
            retries,
            backoff: options.backoff.unwrap_or(usual.backoff),
            retry_on: codes(&options.retry_on, usual.retry_on),
            no_retry_on: codes(&options.no_retry_on, usual.no_retry_on),
            timeout: options.timeout.map_or(usual.timeout, OrNone::into_option),
            kill_signal: options
                .kill_signal
                .map_or(usual.kill_signal, |signal| signal.0),
            expire,
            limits,
            max_output: options.max_output.map_or(usual.max_output, |size| {
                size.into_option().map(|size| size.0)
            }),
            vars: usual.vars,
        })
    }

    /// Reads until when a step has to be started: a duration from now, or a time.
    fn expire(&self, text: &str) -> Result<Timestamp> {
        let instant = match text.parse::<Span>() {
            Ok(span) => self.now + span,
            Err(_) => self.context.zone.read(text, self.now)?,
        };
        if instant <= self.now {
            return Err(usage(format!("--expire {text:?}: that is over already")));
        }
        Ok(instant)
    }

    /// Finds the stored steps that one waits for, and the key of the first.
    pub(super) fn stored_parents(
        &self,
        said: &Said,
    ) -> Result<(Vec<Dependency>, Option<FairnessKey>)> {
        let mut after: Vec<Dependency> = Vec::new();
        for (need, word) in said.ties.parents() {
            for id in self.ids(need, word)? {
                after.push(Dependency {
                    parent: Parent::Step(id),
                    need,
                });
            }
        }
        let mut key = None;
        if let (None, Some(first), Some(store)) = (&said.options.key, after.first(), self.store)
            && let Parent::Step(id) = first.parent
        {
            key = store.get(id)?.map(|step| step.key);
        }
        after.sort_unstable();
        after.dedup();
        Ok((after, key))
    }

    /// Returns the stored steps that a word after `--after` means.
    fn ids(&self, need: Need, word: &str) -> Result<Vec<StepId>> {
        let option = option_of(need);
        let range = words::ids(word).map_err(|error| {
            error.context(format!("{option} {word:?}")).hint(format!(
                "{option} takes ids, as a3 or a5-a9, with commas between; put -- before the command"
            ))
        })?;
        let found = match (self.store, range.single()) {
            (None, _) => Vec::new(),
            (Some(store), Some(id)) => {
                let step = store
                    .get(id)
                    .map_err(|error| error.context(format!("{option} {word}")))?;
                step.map(|step| step.id).into_iter().collect()
            }
            (Some(store), None) => store.find(&Filter {
                ids: vec![(range.shard, range.first.get(), range.last.get())],
                order: Order::Id,
                ..Filter::default()
            })?,
        };
        if found.is_empty() {
            return Err(no_such_step(word).context(format!("{option} {word}")));
        }
        Ok(found)
    }

    /// Returns where a step will run; it must be there now, for a mistyped one is best found here.
    fn cwd(&self, given: Option<&Path>) -> Result<PathBuf> {
        if let Some((said, path)) = &*self.last_cwd.borrow()
            && said.as_deref() == given
        {
            return Ok(path.clone());
        }
        let path = self.find_cwd(given)?;
        *self.last_cwd.borrow_mut() = Some((given.map(Path::to_owned), path.clone()));
        Ok(path)
    }

    /// Returns what of a stored step is to be changed, and how.
    ///
    /// # Errors
    ///
    /// `Usage` for what cannot be meant.
    pub(in crate::cli) fn edit(&self, said: &StepOptions, step: &StepView) -> Result<Edit> {
        let (mut options, mut usual) = (said.clone(), step.policy.clone());
        if options.timeout == Some(OrNone::Some(Span::default())) {
            options.timeout = Some(OrNone::None);
        }
        if !options.limit.is_empty() {
            usual.limits.clear();
        }
        let policy = self.policy(&options, usual)?;
        // An empty word takes away what it would name.
        let some = |text: &String| (!text.is_empty()).then(|| text.clone());
        let due = match (&options.delay, &options.at) {
            (Some(delay), _) => Some(self.now + *delay),
            (None, Some(at)) => Some(self.context.zone.read(at, self.now)?),
            (None, None) => None,
        };
        let band = options.band.as_ref();
        let cwd = options.cwd.as_deref();
        Ok(Edit {
            command: None,
            cwd: cwd.map(|cwd| self.cwd(Some(cwd))).transpose()?,
            env: self.changed_env(&options, step)?,
            band: band
                .map(|word| words::band(word, &self.context.settings))
                .transpose()?,
            key: options.key.clone(),
            weight: options.weight,
            name: options.name.as_ref().map(some),
            tags: (!options.tag.is_empty()).then(|| options.tag.iter().filter_map(some).collect()),
            flow: options.flow.as_ref().map(some),
            due: due.map(|due| (due > self.now).then_some(due)),
            policy: (policy != step.policy).then_some(policy),
        })
    }

    /// Returns the step's own variables with what is said of them; `None` if nothing is.
    fn changed_env(
        &self,
        options: &StepOptions,
        step: &StepView,
    ) -> Result<Option<Arc<Environment>>> {
        if options.env.is_empty() && options.env_file.is_empty() && !options.clean_env {
            return Ok(None);
        }
        let own = step.env.pairs();
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let said = env::Said::of(options);
        let env = env::environment(&said, &own.collect(), &self.context.around.vars)?;
        Ok(Some(Arc::new(env)))
    }

    fn find_cwd(&self, given: Option<&Path>) -> Result<PathBuf> {
        let here = || {
            self.context.around.cwd.clone().ok_or_else(|| {
                Error::new(ErrorKind::General, "the present directory is gone")
                    .hint("go to one that is there, or name it with --cwd")
            })
        };
        let Some(given) = given else {
            return here();
        };
        let path = if given.is_absolute() {
            given.to_owned()
        } else {
            here()?.join(given)
        };
        let refuse = |why: &str| {
            Err(usage(format!("--cwd {}: {why}", path.display())).hint("nothing was stored"))
        };
        match std::fs::metadata(&path) {
            Ok(found) if found.is_dir() => Ok(path),
            Ok(_) => refuse("it is not a directory"),
            Err(error) => refuse(&plain(&error)),
        }
    }

    fn env(&self, options: &StepOptions) -> Result<Arc<Environment>> {
        let said = env::Said::of(options);
        if let Some((last, env)) = &*self.last_env.borrow()
            && *last == said
        {
            return Ok(Arc::clone(env));
        }
        let around = &self.context.around.vars;
        let env = Arc::new(env::environment(&said, around, around)?);
        *self.last_env.borrow_mut() = Some((said, Arc::clone(&env)));
        Ok(env)
    }
}

/// Returns the option by which something is needed of other steps.
const fn option_of(need: Need) -> &'static str {
    match need {
        Need::Success => "--after",
        Need::End => "--after-any",
        Need::Failure => "--after-failed",
    }
}

fn usage(what: String) -> Error {
    Error::new(ErrorKind::Usage, what)
}
