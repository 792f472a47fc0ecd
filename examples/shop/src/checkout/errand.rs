//! A foreign step in the shop's words: what it asks for, and where it asks what became of it.
//!
//! What is asked is frozen as JSON, and so is what was made. A refusal of a call that is not the
//! first under its key is believed only when the provider stands by it: the call before may be at
//! work, or done.

use std::future::Future;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax::{
    saga::{Call, Foreign, Found, Outcome, SagaRecord},
    sink::BoxError,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::providers::{Label, Made, confirmed};

/// What a step has a provider do.
pub(super) trait Errand: Send + Sync + 'static {
    /// What is asked, the same for every attempt.
    type Asked: DeserializeOwned + Serialize + Send + Sync;
    /// The code of a refusal that says that there is nothing left to do: then it is done, too.
    const NOTHING_LEFT: Option<&'static str> = None;

    /// What is to be asked.
    fn asked(&self, saga: &SagaRecord) -> Result<Self::Asked, BoxError>;

    /// Asks for it, once.
    fn ask(
        &self,
        label: Label<'_>,
        asked: &Self::Asked,
    ) -> impl Future<Output = Outcome<Made>> + Send;

    /// Asks what became of the key.
    fn find(
        &self,
        label: Label<'_>,
        asked: &Self::Asked,
    ) -> impl Future<Output = Found<Made>> + Send;
}

/// An errand as a step.
pub(super) struct Sent<E>(pub(super) E);

impl<E: Errand> Foreign for Sent<E> {
    fn request(&self, saga: &SagaRecord) -> Result<Bytes, BoxError> {
        Ok(serde_json::to_vec(&self.0.asked(saga)?)?.into())
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Outcome<Bytes>> {
        Box::pin(async move {
            let asked = match serde_json::from_slice(&call.request) {
                Ok(asked) => asked,
                Err(error) => return Outcome::Unknown(error.into()),
            };
            let mut outcome = self.0.ask(call.into(), &asked).await;
            if call.attempt > 1 {
                outcome = confirmed(outcome, self.0.find(call.into(), &asked)).await;
            }
            match outcome {
                Outcome::Refused(why) if E::NOTHING_LEFT == Some(why.code.as_str()) => {
                    Outcome::Done(Bytes::new())
                }
                outcome => outcome.map(|made| made.kept()),
            }
        })
    }

    fn look_up<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Found<Bytes>>> {
        Some(Box::pin(async move {
            match serde_json::from_slice(&call.request) {
                Ok(asked) => {
                    let found = self.0.find(call.into(), &asked).await;
                    found.map(|made| made.kept())
                }
                Err(error) => Found::Unknown(error.into()),
            }
        }))
    }
}
