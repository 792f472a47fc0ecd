//! Timer with a precision of a tenth of a millisecond; the runtime's has whole milliseconds.
//!
//! One thread sleeps until the earliest time that is awaited. It never spins: a delay costs two
//! wake-ups.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use tokio::sync::oneshot;

/// A handle of the thread, which ends with the last handle.
#[derive(Debug)]
pub(super) struct Alarm(Arc<Clockwork>);

#[derive(Debug, Default)]
struct Clockwork {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    told: std::collections::HashMap<u64, oneshot::Sender<()>>,
    next: u64,
    stopped: bool,
}

impl Alarm {
    pub(super) fn start() -> Self {
        let clockwork = Arc::new(Clockwork::default());
        let turning = Arc::clone(&clockwork);
        thread::spawn(move || turning.turn());
        Self(clockwork)
    }

    /// Completes at `due`, or at once if `due` has passed.
    pub(super) fn at(&self, due: Instant) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        let mut waiting = self.0.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.told.insert(number, tell);
        waiting.due.push(Reverse((due, number)));
        let is_first = waiting.due.peek() == Some(&Reverse((due, number)));
        drop(waiting);
        if is_first {
            self.0.changed.notify_one();
        }
        told
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.0.lock().stopped = true;
        self.0.changed.notify_one();
    }
}

impl Clockwork {
    fn turn(&self) {
        let mut waiting = self.lock();
        while !waiting.stopped {
            let now = Instant::now();
            let first = waiting.due.peek().map(|Reverse(first)| *first);
            waiting = match first {
                None => self
                    .changed
                    .wait(waiting)
                    .unwrap_or_else(PoisonError::into_inner),
                Some((due, number)) if due <= now => {
                    waiting.due.pop();
                    // The receiver may have been dropped.
                    let _told = waiting.told.remove(&number).map(|tell| tell.send(()));
                    waiting
                }
                Some((due, _)) => {
                    let slept = self.changed.wait_timeout(waiting, due - now);
                    slept.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn an_alarm_comes_in_the_order_of_time_and_never_early() {
        let alarm = Alarm::start();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let (late, early, past) = (alarm.at(at(20)), alarm.at(at(5)), alarm.at(start));
        past.await.unwrap();
        early.await.unwrap();
        assert!(start.elapsed() >= Duration::from_millis(5));
        late.await.unwrap();
        assert!(start.elapsed() >= Duration::from_millis(20));
    }
}
