//! Sessions, identified by a random cookie of which only the hash is stored.
//!
//! A session expires, earlier if it is not used. The number of sessions per caller is limited; a
//! further one ends the caller's oldest. The CSRF token of a form is derived from the cookie and a
//! key of this process, so it is valid for one browser and until a restart.

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

use crate::auth::{Caller, hash};

/// The name of the cookie.
pub(crate) const COOKIE: &str = "hapax_console";
/// Maximum lifetime of a session.
pub(crate) const LIFE: Duration = Duration::from_hours(12);
/// Lifetime of an unused session.
const IDLE: Duration = Duration::from_hours(2);
/// Maximum number of sessions per caller.
const SESSIONS_EACH: usize = 16;

/// The current sessions.
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
    /// No sessions yet.
    pub(crate) fn new(clock: Clock) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &random());
        let open = Mutex::default();
        Self { clock, key, open }
    }

    /// Starts a session and returns its cookie.
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

    /// The caller with this cookie.
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

    /// Whether the session of this cookie is still alive. The check does not prolong it.
    pub(crate) fn lives(&self, cookie: &str) -> bool {
        let now = self.clock.now();
        let open = self.lock();
        let session = open.get(&hash(cookie.as_bytes()));
        session.is_some_and(|session| session.lives(now))
    }

    /// Ends a session.
    pub(crate) fn end(&self, cookie: &str) {
        self.lock().remove(&hash(cookie.as_bytes()));
    }

    /// The CSRF token for forms of this browser.
    pub(crate) fn csrf_token(&self, cookie: &str) -> String {
        let tag = hmac::sign(&self.key, cookie.as_bytes());
        URL_SAFE_NO_PAD.encode(tag)
    }

    /// Checks a CSRF token in constant time.
    pub(crate) fn is_csrf_token(&self, cookie: &str, csrf_token: &str) -> bool {
        let tag = URL_SAFE_NO_PAD.decode(csrf_token).unwrap_or_default();
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

/// A random cookie.
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

    use hapax::admin::Actor;

    use super::*;
    use crate::auth::Role;

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
    fn a_session_ends_when_it_is_idle_and_at_the_end_of_its_life() {
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
        let csrf_token = sessions.csrf_token(&one);
        assert!(sessions.is_csrf_token(&one, &csrf_token));
        assert!(!sessions.is_csrf_token(&two, &csrf_token));
        assert!(!sessions.is_csrf_token(&one, ""));
        let (again, _) = self::sessions();
        assert!(!again.is_csrf_token(&one, &csrf_token));
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
