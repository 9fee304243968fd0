//! The HTTP library, set up once for everybody: no proxies, a deadline, one crypto provider.

use reqwest::{Client, ClientBuilder};

use crate::wait::SOON;

/// A client with the deadline of ordinary steps.
pub(crate) fn client() -> anyhow::Result<Client> {
    Ok(builder().build()?)
}

/// The same, to be changed further.
pub(crate) fn builder() -> ClientBuilder {
    choose_provider();
    Client::builder().no_proxy().timeout(SOON)
}

/// The tree has two crypto providers, so one has to be named before TLS is used.
pub(crate) fn choose_provider() {
    // Whoever is first chooses the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
