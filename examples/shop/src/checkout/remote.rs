//! Remote steps of a checkout: the request to a provider, and the look-up of its outcome.
//!
//! The request and the created object are stored as JSON. If a call that is not the first under its
//! key is refused, the shop looks the key up before it believes the refusal: an earlier call may
//! still be running, or may have succeeded.

use std::future::Future;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax::{
    saga::{Call, Found, Outcome, RemoteStep, SagaRecord},
    sink::BoxError,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::providers::{Label, Made, confirmed};

/// An operation of a provider, for use as a saga step.
pub(super) trait ProviderStep: Send + Sync + 'static {
    /// The request, which is the same for every attempt.
    type Request: DeserializeOwned + Serialize + Send + Sync;
    /// The code of a refusal which means that the operation was already done.
    const NOTHING_LEFT: Option<&'static str> = None;

    /// Builds the request from the saga.
    fn asked(&self, saga: &SagaRecord) -> Result<Self::Request, BoxError>;

    /// Calls the provider once.
    fn ask(
        &self,
        label: Label<'_>,
        asked: &Self::Request,
    ) -> impl Future<Output = Outcome<Made>> + Send;

    /// Asks the provider for the outcome of the key.
    fn find(
        &self,
        label: Label<'_>,
        asked: &Self::Request,
    ) -> impl Future<Output = Found<Made>> + Send;
}

/// Adapts an [`ProviderStep`] to a remote step of a saga.
pub(super) struct Sent<E>(pub(super) E);

impl<E: ProviderStep> RemoteStep for Sent<E> {
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
