//! Runs what searches ask for, each only once.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::point::{self, Ask, Came};
use super::search::{self, Known};
use super::subject::Subject;
use super::{Kept, Question, SYSTEMS};
use crate::Error;
use crate::parallel;
use crate::systems::Setting;

/// What a search is about: a system under some condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// The system.
    pub system: &'static str,
    /// Its settings.
    pub settings: Vec<Setting>,
    /// The seed.
    pub seed: u64,
    /// See [`Ask::latency`].
    pub latency: f64,
    /// See [`Ask::misses`].
    pub misses: f64,
    /// By how much the accesses of the lower tier are taken to be more.
    pub far_factor: f64,
}

impl Limit {
    /// A system as it is.
    pub fn of(subject: &Subject, system: &'static str) -> Limit {
        Limit {
            system,
            settings: Vec::new(),
            seed: subject.seed(),
            latency: 1.0,
            misses: 1.0,
            far_factor: 1.0,
        }
    }

    fn ask(&self, subject: &Subject, points: u32) -> Ask {
        Ask {
            system: self.system,
            settings: self.settings.clone(),
            top_mib: Some(subject.mib_of(points)),
            seed: self.seed,
            latency: self.latency,
            misses: self.misses,
        }
    }

    /// Everything in the top tier.
    fn best(&self) -> Ask {
        Ask {
            system: "none",
            settings: Vec::new(),
            top_mib: None,
            seed: self.seed,
            latency: 1.0,
            misses: self.misses,
        }
    }
}

/// See the head of this file.
pub struct Runner<'a> {
    pub subject: &'a Subject,
    pub question: &'a Question,
    kept: &'a dyn Kept,
    progress: &'a (dyn Fn(usize, usize) + Sync),
    done: Mutex<HashMap<String, Came>>,
    runs: AtomicUsize,
    expected: usize,
}

impl<'a> Runner<'a> {
    pub fn new(
        subject: &'a Subject,
        question: &'a Question,
        kept: &'a dyn Kept,
        progress: &'a (dyn Fn(usize, usize) + Sync),
    ) -> Runner<'a> {
        let coarse = search::coarse(question.coarse_steps, subject.points_max()).len();
        // Bisection takes some four more, a band some three on each side, and so does a change.
        let bands = 3 * (question.seeds as usize - 1 + 2 + 2);
        let changes = if question.with_changes {
            3 * super::change::COUNT
        } else {
            0
        };
        Runner {
            subject,
            question,
            kept,
            progress,
            done: Mutex::default(),
            runs: AtomicUsize::new(0),
            expected: SYSTEMS.len() * (coarse + 4 + bands) + changes,
        }
    }

    fn done(&self) -> MutexGuard<'_, HashMap<String, Came>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a run comes to.
    fn came(&self, ask: &Ask) -> Result<Came, Error> {
        let key = ask.key();
        if let Some(came) = self.done().get(&key) {
            return Ok(*came);
        }
        let came = match self.kept.find(&key) {
            Some(came) => came,
            None => {
                let came = point::run(self.subject, ask)?;
                self.kept.keep(&key, &came)?;
                came
            }
        };
        self.done().insert(key, came);
        let runs = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        (self.progress)(runs, self.expected.max(runs + 1));
        Ok(came)
    }

    fn slowdown(&self, limit: &Limit, points: u32) -> Result<f64, Error> {
        let best_s = self.came(&limit.best())?.work_s;
        let came = self.came(&limit.ask(self.subject, points))?;
        Ok(came.slowdown_percent(best_s, limit.far_factor))
    }

    /// What `run` makes of each item, side by side.
    pub fn each<T: Sync, R: Send>(&self, items: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
        parallel::each_of(items, self.question.jobs, run, &|_| ())
    }

    /// Runs the coarse look of all these, side by side.
    pub fn coarse(&self, limits: &[Limit]) -> Result<(), Error> {
        for limit in limits {
            if !self.came(&limit.best())?.is_complete {
                let what = "the work is not done by then even with everything in the top tier: \
                            allow more, or give the processes fewer accesses";
                return Err(Error::field("seconds", what));
            }
        }
        let sizes = search::coarse(self.question.coarse_steps, self.subject.points_max());
        let asks = limits
            .iter()
            .flat_map(|limit| sizes.iter().map(move |size| (limit, *size)));
        let asks: Vec<_> = asks.collect();
        let ran = self.each(&asks, |(limit, size)| self.slowdown(limit, *size));
        ran.into_iter()
            .try_for_each(|slowdown| slowdown.map(|_| ()))
    }

    /// After [`Runner::coarse`]: see [`search::smallest`].
    pub fn smallest(&self, limit: &Limit) -> Result<Option<u32>, Error> {
        let mut known = self.slowdowns(limit);
        let accepted = self.question.slowdown_percent;
        search::smallest(&mut known, accepted, &mut |size| self.slowdown(limit, size))
    }

    /// See [`search::near`].
    pub fn near(&self, limit: &Limit, from: u32, runs: u32) -> Result<Option<u32>, Error> {
        let (range, accepted) = (
            (from, self.subject.points_max()),
            self.question.slowdown_percent,
        );
        let mut at = |size| self.slowdown(limit, size);
        search::near(&mut Known::new(), range, accepted, runs, &mut at)
    }

    /// What ran under a condition, by size in points.
    pub fn known(&self, limit: &Limit) -> BTreeMap<u32, Came> {
        let done = self.done();
        let at = |points| Some((points, *done.get(&limit.ask(self.subject, points).key())?));
        (1..=self.subject.points_max()).filter_map(at).collect()
    }

    /// How long everything takes in the top tier, if that ran.
    pub fn best_s(&self, limit: &Limit) -> Option<f64> {
        self.done().get(&limit.best().key()).map(|came| came.work_s)
    }

    /// See [`search::rise`].
    pub fn rise(&self, limit: &Limit) -> Option<(u32, u32)> {
        search::rise(&self.slowdowns(limit), self.question.slowdown_percent)
    }

    fn slowdowns(&self, limit: &Limit) -> Known {
        let best_s = self.best_s(limit).unwrap_or(f64::NAN);
        let slowdown = |came: Came| came.slowdown_percent(best_s, limit.far_factor);
        let known = self.known(limit).into_iter();
        known.map(|(size, came)| (size, slowdown(came))).collect()
    }
}
