//! The program, as its header says: the charge is repeated under one key, and the saga completes.

use std::process::Command;

#[test]
fn a_charge_whose_response_is_lost_is_repeated_under_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_saga"));
    let output = command.current_dir(folder.path()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    let [first, second, end] = lines[..] else {
        panic!("three lines are expected: {text}");
    };
    let (first, second) = (first.split_once(" under "), second.split_once(" under "));
    let ((number, key), (again, same)) = (first.unwrap(), second.unwrap());
    assert_eq!(
        (number, again),
        ("attempt 1 to charge", "attempt 2 to charge")
    );
    assert_eq!(key, same);
    assert!(end.ends_with(": Completed"), "{end}");
}
