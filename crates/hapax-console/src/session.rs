//! Sessions: who is signed in, by a random cookie that only its hash is kept of.
//!
//! A session ends by itself, sooner when nobody uses it; their number is bounded, and a session
//! more of one caller ends that caller's oldest. What protects a form is made of the cookie and a
//! key of this process: it stands for one browser, and is worth nothing after a restart.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hapax::{Clock, Timestamp};
use ring::{
    hmac,
    rand::{SecureRandom as _, SystemRandom},
};

use crate::door::{Caller, hash};

/// The name of the cookie.
pub(crate) const COOKIE: &str = "hapax_console";
/// How long a session lives at most.
pub(crate) const LIFE: Duration = Duration::from_hours(12);
/// How long it lives when nobody uses it.
const IDLE: Duration = Duration::from_hours(2);
/// Sessions of one caller: its browsers.
const SESSIONS_EACH: usize = 16;

/// Who is signed in.
#[derive(Debug)]
pub(crate) struct Sessions {
    clock: Clock,
    key: hmac::Key,
    open: Mutex<HashMap<[u8; 32], Session>>,
}

#[derive(Debug)]
struct Session {
    caller: Caller,
    began_at: Timestamp,
    used_at: Timestamp,
}

impl Sessions {
    /// Nobody is signed in yet.
    pub(crate) fn new(clock: Clock) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &random());
        let open = Mutex::default();
        Self { clock, key, open }
    }

    /// Signs somebody in, and says what the cookie is.
    pub(crate) fn begin(&self, caller: Caller) -> String {
        let now = self.clock.now();
        let mut open = self.lock();
        open.retain(|_, session| session.lives(now));
        let own = |session: &Session| session.caller.actor == caller.actor;
        while open.values().filter(|it| own(it)).count() >= SESSIONS_EACH {
            let oldest = open.iter().filter(|(_, it)| own(it));
            let oldest = oldest.min_by_key(|(_, it)| it.used_at).map(|(id, _)| *id);
            if let Some(oldest) = oldest {
                open.remove(&oldest);
            }
        }
        let cookie = mint();
        let session = Session {
            caller,
            began_at: now,
            used_at: now,
        };
        open.insert(hash(cookie.as_bytes()), session);
        cookie
    }

    /// Who has this cookie.
    pub(crate) fn find(&self, cookie: &str) -> Option<Caller> {
        let now = self.clock.now();
        let mut open = self.lock();
        let session = open.get_mut(&hash(cookie.as_bytes()))?;
        if !session.lives(now) {
            return None;
        }
        session.used_at = now;
        Some(session.caller.clone())
    }

    /// Whether somebody has this cookie still; asking does not prolong it.
    pub(crate) fn lives(&self, cookie: &str) -> bool {
        let now = self.clock.now();
        let open = self.lock();
        let session = open.get(&hash(cookie.as_bytes()));
        session.is_some_and(|session| session.lives(now))
    }

    /// Signs somebody out.
    pub(crate) fn end(&self, cookie: &str) {
        self.lock().remove(&hash(cookie.as_bytes()));
    }

    /// What a form of this browser says to be believed.
    pub(crate) fn seal(&self, cookie: &str) -> String {
        let tag = hmac::sign(&self.key, cookie.as_bytes());
        URL_SAFE_NO_PAD.encode(tag)
    }

    /// Whether a form came from a page that this browser was given; compared in constant time.
    pub(crate) fn is_sealed(&self, cookie: &str, seal: &str) -> bool {
        let tag = URL_SAFE_NO_PAD.decode(seal).unwrap_or_default();
        hmac::verify(&self.key, cookie.as_bytes(), &tag).is_ok()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    fn lives(&self, now: Timestamp) -> bool {
        now < self.began_at.after(LIFE) && now < self.used_at.after(IDLE)
    }
}

/// A cookie that nobody can guess.
pub(crate) fn mint() -> String {
    URL_SAFE_NO_PAD.encode(random())
}

fn random() -> [u8; 32] {
    let mut bytes = [0; 32];
    let drawn = SystemRandom::new().fill(&mut bytes);
    drawn.expect("the kernel gives random bytes, or nothing here is secret");
    bytes
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    };

    use hapax_postgres::operate::Actor;

    use super::*;
    use crate::door::Role;

    fn caller(name: &str) -> Caller {
        Caller {
            actor: Actor::new(name),
            role: Role::Viewer,
        }
    }

    fn sessions() -> (Sessions, Arc<AtomicI64>) {
        let now = Arc::new(AtomicI64::new(1_000));
        let read = Arc::clone(&now);
        let clock = Clock::new(move || Timestamp::from_millis(read.load(Ordering::Relaxed)));
        (Sessions::new(clock), now)
    }

    #[test]
    fn a_session_ends_when_nobody_uses_it_and_at_the_end_of_its_life() {
        let (sessions, now) = sessions();
        let hour = 3_600_000;
        let idle = sessions.begin(caller("ann"));
        let used = sessions.begin(caller("ann"));
        for _ in 0..11 {
            now.fetch_add(hour, Ordering::Relaxed);
            assert!(sessions.find(&used).is_some());
        }
        assert!(sessions.find(&idle).is_none());
        now.fetch_add(hour, Ordering::Relaxed);
        assert!(sessions.find(&used).is_none());
    }

    #[test]
    fn one_caller_has_a_bounded_number_of_sessions_and_ends_nobody_elses() {
        let (sessions, now) = sessions();
        let other = sessions.begin(caller("bob"));
        let first = sessions.begin(caller("ann"));
        for _ in 0..SESSIONS_EACH {
            now.fetch_add(1, Ordering::Relaxed);
            sessions.begin(caller("ann"));
        }
        assert!(!sessions.lives(&first));
        assert!(sessions.lives(&other));
        assert_eq!(sessions.lock().len(), SESSIONS_EACH + 1);
    }

    #[test]
    fn a_form_of_another_browser_is_not_believed() {
        let (sessions, _) = sessions();
        let (one, two) = (mint(), mint());
        let seal = sessions.seal(&one);
        assert!(sessions.is_sealed(&one, &seal));
        assert!(!sessions.is_sealed(&two, &seal));
        assert!(!sessions.is_sealed(&one, ""));
        let (again, _) = self::sessions();
        assert!(!again.is_sealed(&one, &seal));
    }

    #[test]
    fn who_signed_out_is_out() {
        let (sessions, _) = sessions();
        let cookie = sessions.begin(caller("ann"));
        assert_eq!(sessions.find(&cookie), Some(caller("ann")));
        sessions.end(&cookie);
        assert_eq!(sessions.find(&cookie), None);
    }
}
