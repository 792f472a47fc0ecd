//! Checker of mails: each user that signed up got one welcome mail.

use super::Violation;
use crate::kill::{evidence::Evidence, journal::Operation};

pub(super) fn violations(evidence: &Evidence) -> Vec<Violation> {
    let acknowledged = evidence.acknowledged().into_iter();
    let signups = acknowledged.filter(|found| found.intent.operation == Operation::Signup);
    let emails: Vec<&str> = signups
        .filter_map(|found| found.intent.body["email"].as_str())
        .collect();
    let mut found = Vec::new();
    for email in &emails {
        let mails = evidence
            .mails
            .iter()
            .filter(|to| to.contains(email))
            .count();
        if mails != 1 {
            found.push(Violation::NotOneMail {
                email: (*email).to_owned(),
                mails,
            });
        }
    }
    let (mails, signups) = (evidence.mails.len(), emails.len());
    if found.is_empty() && mails != signups {
        found.push(Violation::UnexplainedMail { mails, signups });
    }
    found
}
