//! What the demo adds: somebody to talk to, in the same process.

pub(crate) mod mail_catcher;
pub(crate) mod receiver;
