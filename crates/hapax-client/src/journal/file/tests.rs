//! Tests of the journal file over several runs of a program.

use std::{
    fs,
    io::Write as _,
    sync::{Arc, Barrier},
    thread,
};

use tempfile::TempDir;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1);

struct Stage {
    folder: TempDir,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    fn begin(&self, body: &str, fresh: &str) -> Begun {
        let fresh = IdempotencyKey::new(fresh).unwrap();
        begin(&self.path(), &intent(body), fresh, NOW).unwrap()
    }

    fn finish(&self, key: &str) {
        finish(&self.path(), &IdempotencyKey::new(key).unwrap(), NOW).unwrap();
    }

    fn withdraw(&self, key: &str) {
        withdraw(&self.path(), &IdempotencyKey::new(key).unwrap(), NOW).unwrap();
    }
}

fn intent(body: &str) -> Intent {
    Intent::new("POST", "http://a/b", body.as_bytes())
}

#[track_caller]
fn check(begun: &Begun, key: &str, is_resumed: bool) {
    assert_eq!((begun.key.as_str(), begun.is_resumed), (key, is_resumed));
}

#[test]
fn an_unfinished_intent_keeps_its_key_and_a_finished_one_gets_another() {
    let stage = Stage::new();
    check(&stage.begin("x", "k1"), "k1", false);
    check(&stage.begin("x", "k2"), "k1", true);
    check(&stage.begin("y", "k3"), "k3", false);
    stage.finish("k1");
    check(&stage.begin("x", "k4"), "k4", false);
    check(&stage.begin("y", "k5"), "k3", true);
}

#[test]
fn a_key_that_another_run_goes_on_under_is_finished_and_not_withdrawn() {
    let stage = Stage::new();
    stage.begin("x", "k1");
    stage.withdraw("k1");
    check(&stage.begin("x", "k2"), "k2", false);
    for fresh in ["k3", "k4"] {
        check(&stage.begin("x", fresh), "k2", true);
    }
    let lines = fs::read_to_string(stage.path()).unwrap().lines().count();
    assert_eq!(lines, 4, "the third run adds no line");
    stage.withdraw("k2");
    check(&stage.begin("x", "k5"), "k2", true);
    stage.finish("k2");
    check(&stage.begin("x", "k6"), "k6", false);
}

#[test]
fn a_torn_last_line_is_cut_off_and_written_over() {
    let stage = Stage::new();
    stage.begin("x", "k1");
    let mut file = OpenOptions::new().append(true).open(stage.path()).unwrap();
    file.write_all(b"{\"state\":\"open\",\"key\":\"k2").unwrap();
    check(&stage.begin("y", "k3"), "k3", false);
    check(&stage.begin("x", "k4"), "k1", true);
    check(&stage.begin("y", "k5"), "k3", true);
}

#[test]
fn what_is_done_is_left_out_of_a_journal_that_has_grown_and_nothing_else_is() {
    let stage = Stage::new();
    stage.begin("x", "k1");
    let line = Record::Done {
        key: "k0".to_owned(),
        at_ms: 0,
    }
    .line();
    let lines = line.repeat(usize::try_from(JOURNAL_BYTES).unwrap() / line.len() + 1);
    let mut file = OpenOptions::new().append(true).open(stage.path()).unwrap();
    file.write_all(lines.as_bytes()).unwrap();
    check(&stage.begin("y", "k2"), "k2", false);
    assert!(fs::metadata(stage.path()).unwrap().len() < 1_000);
    check(&stage.begin("x", "k3"), "k1", true);
    check(&stage.begin("y", "k4"), "k2", true);
}

#[test]
fn many_at_once_that_do_the_same_have_one_key_and_others_their_own() {
    const THREADS: usize = 16;
    for _ in 0..20 {
        let (stage, gate) = (Arc::new(Stage::new()), Arc::new(Barrier::new(THREADS)));
        let start = |n: usize| {
            let (stage, gate) = (Arc::clone(&stage), Arc::clone(&gate));
            thread::spawn(move || {
                gate.wait();
                stage.begin(&format!("{}", n % 2), &format!("k{n}")).key
            })
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        let keys: Vec<_> = threads.into_iter().map(|it| it.join().unwrap()).collect();
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(key, &keys[n % 2]);
        }
        assert_ne!(keys[0], keys[1]);
    }
}

#[cfg(unix)]
#[test]
fn a_journal_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;

    let stage = Stage::new();
    stage.begin("x", "k1");
    let mode = fs::metadata(stage.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_journal_that_cannot_be_understood_is_refused_before_anything_is_sent() {
    let stage = Stage::new();
    fs::write(stage.path(), "not a journal\n").unwrap();
    let key = IdempotencyKey::new("k").unwrap();
    let error = begin(&stage.path(), &intent("x"), key, NOW).unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 1 of the journal is not a valid record"
    );
}
