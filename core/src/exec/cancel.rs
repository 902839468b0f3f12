//! Stopping a run from outside: by a token, or when its time is up.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result, codes};

/// The word says: go on.
pub(crate) const GO: u32 = 0;
/// Somebody cancelled.
pub(crate) const CANCEL: u32 = 1;
/// The time is up.
pub(crate) const TIME_UP: u32 = 2;

/// The error of a run that this word stops; none while it says go on.
pub(crate) fn stopped(word: &AtomicU32) -> Result<()> {
    match word.load(Relaxed) {
        GO => Ok(()),
        TIME_UP => Err(Error::new(codes::TIMEOUT, "the run was stopped because its time was up")),
        _ => Err(Error::new(codes::CANCELLED, "the run was cancelled")),
    }
}

/// Cancels the runs that it was given to. Clones are the same token.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    word: AtomicU32,
    /// Words of runs that also have a time limit.
    others: Mutex<Vec<Arc<AtomicU32>>>,
}

impl CancelToken {
    /// A token that nobody has set.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Stops every run that has this token, now and later, until [`reset`](Self::reset).
    pub fn cancel(&self) {
        self.0.word.store(CANCEL, Relaxed);
        for word in self.others().iter() {
            let _ = word.compare_exchange(GO, CANCEL, Relaxed, Relaxed);
        }
    }

    /// Lets runs go on again that begin from now on.
    pub fn reset(&self) {
        self.0.word.store(GO, Relaxed);
    }

    /// Whether it is set.
    pub fn is_cancelled(&self) -> bool {
        self.0.word.load(Relaxed) != GO
    }

    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.0.word
    }

    fn others(&self) -> std::sync::MutexGuard<'_, Vec<Arc<AtomicU32>>> {
        self.0.others.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A word that is set when the time is up, and by a token if there is one. It is forgotten when dropped.
#[derive(Debug)]
pub(crate) struct Deadline {
    word: Arc<AtomicU32>,
    key: (Instant, u64),
    token: Option<CancelToken>,
}

/// Words to be set, by time.
static WAITING: Mutex<BTreeMap<(Instant, u64), Arc<AtomicU32>>> = Mutex::new(BTreeMap::new());
static CHANGED: Condvar = Condvar::new();

impl Deadline {
    pub fn new(timeout: Duration, token: Option<&CancelToken>) -> Deadline {
        static STARTED: Once = Once::new();
        STARTED.call_once(|| {
            let watch = std::thread::Builder::new().name("ortolan-clock".to_owned()).spawn(watch);
            if let Err(error) = watch {
                tracing::warn!(%error, "timeouts do not work: their thread cannot be started");
            }
        });
        let word = Arc::new(AtomicU32::new(GO));
        if let Some(token) = token {
            token.others().push(Arc::clone(&word));
            if token.is_cancelled() {
                word.store(CANCEL, Relaxed);
            }
        }
        let far = Duration::from_secs(365 * 24 * 3600);
        let key = (Instant::now() + timeout.min(far), Arc::as_ptr(&word).addr() as u64);
        WAITING.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&word));
        CHANGED.notify_one();
        Deadline { word, key, token: token.cloned() }
    }

    pub fn word(&self) -> &AtomicU32 {
        &self.word
    }

    /// Sets the word if the time is up, however late the clock's thread is.
    pub fn look(&self) {
        if Instant::now() >= self.key.0 {
            let _ = self.word.compare_exchange(GO, TIME_UP, Relaxed, Relaxed);
        }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        WAITING.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
        if let Some(token) = &self.token {
            token.others().retain(|w| !Arc::ptr_eq(w, &self.word));
        }
    }
}

fn watch() {
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let now = Instant::now();
        while let Some(first) = waiting.first_entry().filter(|e| e.key().0 <= now) {
            let _ = first.remove().compare_exchange(GO, TIME_UP, Relaxed, Relaxed);
        }
        let next = waiting.first_key_value().map(|(key, _)| key.0);
        waiting = match next {
            Some(at) => {
                let patience = at.saturating_duration_since(Instant::now());
                CHANGED.wait_timeout(waiting, patience).unwrap_or_else(PoisonError::into_inner).0
            }
            None => CHANGED.wait(waiting).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(word: &AtomicU32, want: u32) {
        let end = Instant::now() + Duration::from_secs(10);
        while word.load(Relaxed) == GO && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(word.load(Relaxed), want);
    }

    #[test]
    fn words_are_set_in_time_and_only_while_they_are_waited_for() {
        let late = Deadline::new(Duration::from_secs(3600), None);
        let soon = Deadline::new(Duration::from_millis(10), None);
        let gone = Deadline::new(Duration::from_millis(1000), None);
        let word = Arc::clone(&gone.word);
        drop(gone);
        until(soon.word(), TIME_UP);
        assert_eq!((late.word().load(Relaxed), word.load(Relaxed)), (GO, GO));
    }

    #[test]
    fn a_token_stops_runs_with_a_time_limit_too() {
        let token = CancelToken::new();
        let first = Deadline::new(Duration::from_secs(3600), Some(&token));
        token.clone().cancel();
        until(first.word(), CANCEL);
        let second = Deadline::new(Duration::from_secs(3600), Some(&token));
        until(second.word(), CANCEL);
        drop((first, second));
        assert!(token.others().is_empty() && token.is_cancelled());
        token.reset();
        assert!(!token.is_cancelled());
    }
}
