//! The threads behind `parallel_for`: job slots, not work stealing.
//!
//! A caller works on its own job only, so a short run never waits for another session's chunk. Helper threads take any
//! open slot. Callers and awake helpers together never exceed the pool's threads, spinning is bounded, and nested calls
//! run inline. Where chunks begin depends on length, grain and width alone, never on timing.
//! Knows nothing of sessions, parts or tensors.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::thread::Thread;
use std::time::{Duration, Instant};

use ortolan_ep_abi::raw::{CANCELLED, OK, RangeFn};

/// Jobs that are open at once; a further one runs on its caller alone.
const SLOTS: usize = 64;
/// How long an idle helper spins after its last job while some caller is inside.
const SPIN: Duration = Duration::from_micros(200);
/// How long it still spins once no caller is inside: the gap between two runs of a loop.
const SPIN_ALONE: Duration = Duration::from_micros(50);

/// A pool; lives as long as the process.
pub struct Pool {
    slots: Box<[Slot; SLOTS]>,
    /// Slots that a caller holds.
    used: AtomicU64,
    /// Slots that helpers may join.
    open: AtomicU64,
    /// Threads inside [`Pool::enter`].
    callers: AtomicU32,
    asleep: AtomicU32,
    helpers: Box<[Helper]>,
    threads: u32,
}

/// One job. The body is written while the slot is held and not open, and read by those who counted themselves in
/// while it was open.
#[repr(align(128))]
struct Slot {
    ticket: AtomicU32,
    inside: AtomicU32,
    next: AtomicUsize,
    body: UnsafeCell<Body>,
}

#[derive(Clone, Copy)]
struct Body {
    f: RangeFn,
    user: *mut c_void,
    n: usize,
    grain: usize,
    width: u32,
    cancel: *const AtomicU32,
    owner: usize,
}

#[repr(align(128))]
#[derive(Default)]
struct Helper {
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

// SAFETY: `body` is handed over through `open` and `inside` as told on `Slot`; its pointers are only used by those who
// are counted in `inside`, while the caller waits.
unsafe impl Sync for Slot {}
// SAFETY: as above; a slot has no tie to a thread.
unsafe impl Send for Slot {}

thread_local! {
    /// Owner and worker number of the body that this thread is in; owner 0 is none.
    static INSIDE: Cell<(usize, u32)> = const { Cell::new((0, 0)) };
}

/// What a body runs over, and under whose name.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// Number of items.
    pub n: usize,
    /// Chunks begin at multiples of this.
    pub grain: usize,
    /// Most bodies at once.
    pub width: u32,
    /// No further chunk begins once it is not 0.
    pub cancel: Option<&'a AtomicU32>,
    /// Any number but 0 that is the same for calls that share their workers' scratch.
    pub owner: usize,
}

/// Counts a thread as busy while it lives.
#[derive(Debug)]
pub struct Caller(&'static Pool);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.callers.fetch_sub(1, Relaxed);
    }
}

static GLOBAL: OnceLock<&'static Pool> = OnceLock::new();

impl Pool {
    /// The process's pool: as many threads as the machine and its cgroup allow, unless [`Pool::set_threads`] came first.
    pub fn global() -> &'static Pool {
        GLOBAL.get_or_init(|| Pool::start(available()))
    }

    /// Sets the number of threads of the process's pool, the callers' own included. False if the pool runs already.
    pub fn set_threads(threads: u32) -> bool {
        let mut first = false;
        GLOBAL.get_or_init(|| {
            first = true;
            Pool::start(threads.max(1))
        });
        first
    }

    /// Threads of the pool, the callers' own included.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// Says that this thread computes; hold the guard for a run or a build.
    pub fn enter(&'static self) -> Caller {
        self.callers.fetch_add(1, Relaxed);
        Caller(self)
    }

    /// Starts a pool of its own.
    pub(crate) fn start(threads: u32) -> &'static Pool {
        let slot = || Slot {
            ticket: AtomicU32::new(0),
            inside: AtomicU32::new(0),
            next: AtomicUsize::new(0),
            body: UnsafeCell::new(Body::nothing()),
        };
        let pool: &'static Pool = Box::leak(Box::new(Pool {
            slots: Box::new(std::array::from_fn(|_| slot())),
            used: AtomicU64::new(0),
            open: AtomicU64::new(0),
            callers: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            helpers: (1..threads).map(|_| Helper::default()).collect(),
            threads,
        }));
        pool.lend_threads();
        pool
    }

    fn lend_threads(&'static self) {
        if self.helpers.is_empty() {
            return;
        }
        let built = rayon::ThreadPoolBuilder::new()
            .num_threads(self.helpers.len())
            .thread_name(|i| format!("ortolan-{}", i + 1))
            .build();
        match built {
            Ok(rayon) => {
                for i in 0..self.helpers.len() {
                    rayon.spawn(move || self.help_forever(i));
                }
                // Dropping it would ask its threads to end, and they never do.
                std::mem::forget(rayon);
            }
            Err(error) => tracing::warn!(%error, "no helper threads: parallel_for runs on its caller alone"),
        }
    }

    /// Runs `f` over `0..n` in chunks. `CANCELLED` if some were left out, else `OK`.
    ///
    /// # Safety
    /// `f` may be called with `user` on any thread, several at once, until this returns, and never unwinds.
    pub unsafe fn run(&self, work: Work<'_>, f: RangeFn, user: *mut c_void) -> i32 {
        let body = Body {
            f,
            user,
            n: work.n,
            grain: work.grain.max(1),
            width: work.width,
            cancel: work.cancel.map_or(std::ptr::null(), std::ptr::from_ref),
            owner: work.owner,
        };
        let units = body.units();
        if body.cancelled() {
            return if units == 0 { OK } else { CANCELLED };
        }
        let (outer, worker) = INSIDE.get();
        if outer != 0 || body.width <= 1 || units <= 1 {
            let worker = if outer == body.owner { worker } else { 0 };
            if units > 0 {
                body.call(worker, 0..body.n);
            }
            return OK;
        }
        match self.take_slot() {
            Some(slot) => self.share(slot, body),
            None => body.alone(),
        }
    }

    /// The same for a closure. A panic in it is raised here once all workers have left; chunks begun meanwhile are skipped.
    pub fn for_each(&self, work: Work<'_>, f: impl Fn(u32, Range<usize>) + Sync) -> i32 {
        struct User<F> {
            f: F,
            failed: AtomicBool,
            panic: std::sync::Mutex<Option<Box<dyn std::any::Any + Send>>>,
        }
        unsafe extern "C" fn call<F: Fn(u32, Range<usize>) + Sync>(
            user: *mut c_void,
            worker: u32,
            begin: usize,
            end: usize,
        ) {
            // SAFETY: `user` is the `User<F>` below, which outlives the run.
            let user = unsafe { &*user.cast::<User<F>>() };
            if user.failed.load(Relaxed) {
                return;
            }
            let run = std::panic::AssertUnwindSafe(|| (user.f)(worker, begin..end));
            if let Err(panic) = std::panic::catch_unwind(run) {
                user.failed.store(true, Relaxed);
                if let Ok(mut first) = user.panic.lock() {
                    first.get_or_insert(panic);
                }
            }
        }
        fn of<F: Fn(u32, Range<usize>) + Sync>(_: &User<F>) -> RangeFn {
            RangeFn { f: call::<F> }
        }
        let mut user = User { f, failed: AtomicBool::new(false), panic: std::sync::Mutex::new(None) };
        let f = of(&user);
        // SAFETY: `call` catches panics and only shares `user`, whose closure is `Sync`, until `run` returns.
        let code = unsafe { self.run(work, f, (&raw mut user).cast()) };
        if let Ok(Some(panic)) = user.panic.into_inner() {
            std::panic::resume_unwind(panic);
        }
        code
    }

    fn take_slot(&self) -> Option<usize> {
        let mut used = self.used.load(Relaxed);
        loop {
            let free = (!used).trailing_zeros();
            if free as usize >= SLOTS {
                return None;
            }
            match self.used.compare_exchange_weak(used, used | 1 << free, Acquire, Relaxed) {
                Ok(_) => return Some(free as usize),
                Err(now) => used = now,
            }
        }
    }

    /// The caller's side of a job: open it, work on it, close it, wait for those inside.
    fn share(&self, at: usize, body: Body) -> i32 {
        let (slot, bit) = (&self.slots[at], 1u64 << at);
        slot.ticket.store(1, Relaxed);
        slot.next.store(0, Relaxed);
        // SAFETY: the slot is held by this caller and not open; a late helper reads the body only after it has seen
        // the slot open while counted in, and the last job waited for all who were counted in.
        unsafe { *slot.body.get() = body };
        self.open.fetch_or(bit, SeqCst);
        if self.asleep.load(SeqCst) > 0 {
            self.wake(body.width.min(u32::try_from(body.units()).unwrap_or(u32::MAX)) - 1);
        }
        let finished = slot.work(&body, 0, || true);
        self.open.fetch_and(!bit, SeqCst);
        let mut spins = 0u32;
        while slot.inside.load(SeqCst) != 0 {
            spins += 1;
            if spins < 20_000 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        self.used.fetch_and(!bit, Release);
        if finished { OK } else { CANCELLED }
    }

    /// Helpers that callers leave room for.
    fn room(&self) -> usize {
        self.threads.saturating_sub(self.callers.load(Relaxed).max(1)) as usize
    }

    fn wake(&self, mut count: u32) {
        for helper in self.helpers.iter().take(self.room()) {
            if count == 0 {
                return;
            }
            if helper.asleep.load(Relaxed)
                && helper.asleep.swap(false, SeqCst)
                && let Some(thread) = helper.thread.get()
            {
                thread.unpark();
            }
            count -= 1;
        }
    }

    fn help_forever(&self, me: usize) {
        let _ = self.helpers[me].thread.set(std::thread::current());
        let mut last = 0;
        loop {
            self.spin(me, &mut last);
            self.sleep(me);
        }
    }

    /// Helps and looks for work until there was none for a while, or there is no room for this helper.
    fn spin(&self, me: usize, last: &mut usize) {
        let mut idle_since = Instant::now();
        let mut alone_since = None;
        while me < self.room() {
            if self.help(me, last) {
                (idle_since, alone_since) = (Instant::now(), None);
                continue;
            }
            for _ in 0..100 {
                if self.open.load(Relaxed) != 0 {
                    break;
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            alone_since = if self.callers.load(Relaxed) == 0 { alone_since.or(Some(now)) } else { None };
            if now - idle_since > SPIN || alone_since.is_some_and(|t| now - t > SPIN_ALONE) {
                return;
            }
        }
    }

    fn sleep(&self, me: usize) {
        let asleep = &self.helpers[me].asleep;
        asleep.store(true, SeqCst);
        self.asleep.fetch_add(1, SeqCst);
        // A job opened before the counter rose did not see this sleeper, so look once more.
        if self.open.load(SeqCst) != 0 && me < self.room() {
            asleep.store(false, SeqCst);
        }
        while asleep.load(SeqCst) {
            std::thread::park();
        }
        self.asleep.fetch_sub(1, SeqCst);
    }

    /// Works on one open job, if any; looks from the one after the last.
    fn help(&self, me: usize, last: &mut usize) -> bool {
        let mut open = self.open.load(SeqCst);
        while open != 0 {
            let turned = open.rotate_right(u32::try_from(*last + 1).unwrap_or(0) % 64);
            let at = (turned.trailing_zeros() as usize + *last + 1) % SLOTS;
            open &= !(1 << at);
            if self.join(me, at) {
                *last = at;
                return true;
            }
        }
        false
    }

    fn join(&self, me: usize, at: usize) -> bool {
        let (slot, bit) = (&self.slots[at], 1u64 << at);
        slot.inside.fetch_add(1, SeqCst);
        let mut worked = false;
        // Seen open after counting in: the caller waits for us before it gives the slot away.
        if self.open.load(SeqCst) & bit != 0 {
            // SAFETY: as just said; the body was written before the slot was opened.
            let body = unsafe { *slot.body.get() };
            if slot.ticket.load(Relaxed) < body.width {
                let worker = slot.ticket.fetch_add(1, Relaxed);
                if worker < body.width {
                    worked = true;
                    if slot.work(&body, worker, || me < self.room()) {
                        self.open.fetch_and(!bit, SeqCst);
                    }
                }
            }
        }
        slot.inside.fetch_sub(1, SeqCst);
        worked
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} threads)", self.threads)
    }
}

impl Slot {
    /// Runs chunks while there are some; true if none are left.
    fn work(&self, body: &Body, worker: u32, may_go_on: impl Fn() -> bool) -> bool {
        let units = body.units();
        let mut at = self.next.load(Relaxed);
        loop {
            if at >= units {
                return true;
            }
            if body.cancelled() || !may_go_on() {
                return false;
            }
            let size = step(units - at, body.width);
            match self.next.compare_exchange_weak(at, at + size, Relaxed, Relaxed) {
                Ok(_) => {
                    body.call(worker, body.range(at, size));
                    at = self.next.load(Relaxed);
                }
                Err(now) => at = now,
            }
        }
    }
}

/// Grains of the chunk that comes when `left` are left: falling, so that workers end together.
fn step(left: usize, width: u32) -> usize {
    (left / (2 * width as usize)).max(1)
}

impl Body {
    fn nothing() -> Body {
        unsafe extern "C" fn none(_: *mut c_void, _: u32, _: usize, _: usize) {}
        Body {
            f: RangeFn { f: none },
            user: std::ptr::null_mut(),
            n: 0,
            grain: 1,
            width: 1,
            cancel: std::ptr::null(),
            owner: 0,
        }
    }

    fn units(&self) -> usize {
        self.n.div_ceil(self.grain)
    }

    fn range(&self, at: usize, size: usize) -> Range<usize> {
        at * self.grain..(at + size).saturating_mul(self.grain).min(self.n)
    }

    fn cancelled(&self) -> bool {
        // SAFETY: null, or borrowed by the caller of `run`, which waits for everybody who has this body.
        unsafe { self.cancel.as_ref() }.is_some_and(|c| c.load(Relaxed) != 0)
    }

    fn call(&self, worker: u32, range: Range<usize>) {
        let outer = INSIDE.replace((self.owner, worker));
        // SAFETY: the promise of `Pool::run`'s caller, who waits for everybody who has this body.
        unsafe { (self.f.f)(self.user, worker, range.start, range.end) };
        INSIDE.set(outer);
    }

    /// The same chunks without a slot.
    fn alone(&self) -> i32 {
        let (units, mut at) = (self.units(), 0);
        while at < units {
            if self.cancelled() {
                return CANCELLED;
            }
            let size = step(units - at, self.width);
            self.call(0, self.range(at, size));
            at += size;
        }
        OK
    }
}

/// Threads that the machine and its cgroup allow.
pub fn available() -> u32 {
    std::thread::available_parallelism().ok().and_then(|n| u32::try_from(n.get()).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    fn work(n: usize, grain: usize, width: u32) -> Work<'static> {
        Work { n, grain, width, cancel: None, owner: 1 }
    }

    fn ranges(pool: &Pool, w: Work<'_>) -> BTreeSet<(usize, usize)> {
        let seen = Mutex::new(BTreeSet::new());
        let code = pool.for_each(w, |worker, r| {
            assert!(worker < w.width.max(1));
            assert!(seen.lock().unwrap().insert((r.start, r.end)), "a range came twice");
        });
        assert_eq!(code, OK);
        seen.into_inner().unwrap()
    }

    #[test]
    fn every_item_once_and_the_same_boundaries_each_time() {
        let pool = Pool::start(3);
        let _caller = pool.enter();
        for (n, grain, width) in [(0, 1, 2), (1, 1, 3), (7, 3, 2), (1000, 1, 3), (1001, 7, 2), (64, 64, 4), (65, 64, 4)]
        {
            let first = ranges(pool, work(n, grain, width));
            let mut at = 0;
            for &(begin, end) in &first {
                assert_eq!((begin, begin % grain), (at, 0), "n {n} grain {grain} width {width}");
                at = end;
            }
            assert_eq!(at, n);
            for _ in 0..20 {
                assert_eq!(ranges(pool, work(n, grain, width)), first);
            }
        }
    }

    #[test]
    fn a_slotless_job_has_the_same_boundaries() {
        let pool = Pool::start(2);
        let shared = ranges(pool, work(1000, 3, 2));
        pool.used.store(u64::MAX, SeqCst);
        assert_eq!(ranges(pool, work(1000, 3, 2)), shared);
    }

    #[test]
    fn nested_calls_run_inline_under_the_same_worker() {
        let pool = Pool::start(4);
        let code = pool.for_each(work(64, 1, 4), |worker, _| {
            let thread = std::thread::current().id();
            let code = pool.for_each(work(100, 1, 4), |inner, r| {
                assert_eq!((inner, std::thread::current().id(), r), (worker, thread, 0..100));
            });
            assert_eq!(code, OK);
            pool.for_each(Work { owner: 2, ..work(100, 1, 4) }, |inner, _| assert_eq!(inner, 0));
        });
        assert_eq!(code, OK);
        assert_eq!(INSIDE.get(), (0, 0));
    }

    #[test]
    fn a_panic_is_raised_at_the_caller_and_the_pool_goes_on() {
        let pool = Pool::start(2);
        let hit = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.for_each(work(100, 1, 2), |_, r| assert!(!r.contains(&50), "at fifty"));
        }));
        assert!(hit.unwrap_err().downcast_ref::<&str>().is_some_and(|t| t.contains("at fifty")));
        assert_eq!(ranges(pool, work(10, 1, 2)).len(), 8);
    }

    #[test]
    fn cancel_leaves_chunks_out_and_says_so() {
        let pool = Pool::start(2);
        for width in [2, 4] {
            let (cancel, ran) = (AtomicU32::new(0), AtomicUsize::new(0));
            let w = Work { cancel: Some(&cancel), ..work(10_000, 1, width) };
            let code = pool.for_each(w, |_, r| {
                ran.fetch_add(r.len(), SeqCst);
                cancel.store(1, SeqCst);
            });
            assert_eq!(code, CANCELLED);
            assert!(ran.load(SeqCst) < 10_000);
            assert_eq!(pool.for_each(w, |_, _| panic!("runs although cancelled")), CANCELLED);
            assert_eq!(pool.for_each(Work { n: 0, ..w }, |_, _| ()), OK);
        }
    }

    #[test]
    fn a_short_caller_does_not_wait_for_a_long_one() {
        let pool = Pool::start(2);
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                let _caller = pool.enter();
                while !stop.load(Relaxed) {
                    pool.for_each(Work { owner: 7, ..work(4, 1, 2) }, |_, _| {
                        let until = Instant::now() + Duration::from_millis(20);
                        while Instant::now() < until && !stop.load(Relaxed) {
                            std::hint::spin_loop();
                        }
                    });
                }
            });
            let _caller = pool.enter();
            let me = std::thread::current().id();
            let mut mine = 0;
            for _ in 0..200 {
                // The long job's owner never shows up on this thread: a caller helps only itself.
                pool.for_each(work(8, 1, 2), |_, _| {
                    if std::thread::current().id() == me {
                        assert_eq!(INSIDE.get().0, 1);
                    }
                });
                mine += 1;
            }
            stop.store(true, Relaxed);
            assert_eq!(mine, 200);
        });
        assert_eq!(pool.callers.load(SeqCst), 0);
    }

    #[test]
    fn many_callers_at_once_get_their_own_results() {
        let pool = Pool::start(3);
        std::thread::scope(|s| {
            for t in 0..6u64 {
                s.spawn(move || {
                    let _caller = pool.enter();
                    for round in 0..300usize {
                        let sum = AtomicU64::new(0);
                        pool.for_each(Work { owner: 100, ..work(round, 1 + round % 5, 3) }, |_, r| {
                            sum.fetch_add(r.map(|i| i as u64 + t).sum(), SeqCst);
                        });
                        let n = round as u64;
                        assert_eq!(sum.into_inner(), n * n.saturating_sub(1) / 2 + n * t);
                    }
                });
            }
        });
        assert_eq!((pool.used.load(SeqCst), pool.open.load(SeqCst)), (0, 0));
    }

    #[test]
    fn helpers_sleep_when_nobody_calls_and_wake_for_work() {
        let pool = Pool::start(2);
        for _ in 0..3 {
            let until = Instant::now() + Duration::from_secs(5);
            while pool.asleep.load(SeqCst) == 0 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(pool.asleep.load(SeqCst), 1);
            let _caller = pool.enter();
            let threads = Mutex::new(std::collections::HashSet::new());
            pool.for_each(work(50, 1, 2), |_, _| {
                threads.lock().unwrap().insert(std::thread::current().id());
                std::thread::sleep(Duration::from_millis(1));
            });
            assert_eq!(threads.into_inner().unwrap().len(), 2);
        }
    }
}
