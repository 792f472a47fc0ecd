//! A single connection without a pool and without a check of the schema.
//!
//! It is for tools that inspect a database that may be a standby, empty, or of another application,
//! and for a relay that listens. The connection, including TLS, is made as the store makes it.

use tokio::time::timeout;
use tokio_postgres::{Client, Connection, Socket, tls::MakeTlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{
    address::Address,
    error::{OpenError, unavailable},
    settings::Settings,
    tls,
};

/// A connection, which has to be polled.
type Wire = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Connects to the database of the settings; the connection ends with the client.
///
/// # Errors
/// Fails when the settings are not usable, and when the database cannot be reached.
pub async fn dial(settings: &Settings) -> Result<Client, OpenError> {
    let (client, connection) = connect(settings).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Connects like [`dial`]; the caller polls the connection.
pub(crate) async fn connect(settings: &Settings) -> Result<(Client, Wire), OpenError> {
    let address = Address::of(settings)?;
    let connector = tls::connector(&address)?;
    let config = address.limited(settings);
    let unreachable = |source| OpenError::Unavailable { source };
    let connected = timeout(settings.connect_max, config.connect(connector)).await;
    let connected = connected
        .map_err(|_| unreachable(Box::new(unavailable("the database did not answer in time"))))?;
    connected.map_err(|error| unreachable(error.into()))
}
