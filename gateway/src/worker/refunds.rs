//! Sends a payment back by the shop's payment service.
//!
//! At least once: the number of the payment is the idempotency key, so a repeat is no second refund. What never happens here:
//! deciding that something is refunded, or when to try again.

use gateway_core::config::Payments;
use gateway_core::id::{OrderNo, PayNo};
use reqwest::Client;
use reqwest::redirect::Policy;
use serde_json::json;

/// What became of an attempt; the text is for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refund {
    /// The service has taken it.
    Sent,
    /// Not this time.
    Failed(String),
    /// No service is configured.
    Nowhere,
}

/// The payment service.
pub(super) struct Refunds {
    client: Client,
    settings: Payments,
}

impl Refunds {
    /// The service of the configuration, if there is one.
    pub(super) fn new(settings: &Payments) -> Result<Self, reqwest::Error> {
        // The tree has two crypto providers, so one has to be named; whoever was first chose the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // The token goes to the address of the configuration and nowhere else.
        let client = Client::builder().timeout(settings.timeout).no_proxy().redirect(Policy::none()).build()?;
        Ok(Self { client, settings: settings.clone() })
    }

    /// One attempt.
    pub(super) async fn send(&self, order_no: &OrderNo, pay_no: &PayNo, amount_cents: u64) -> Refund {
        let Some(url) = &self.settings.refund_url else { return Refund::Nowhere };
        let body = json!({ "orderNo": order_no.as_str(), "payNo": pay_no.as_str(), "amountCents": amount_cents });
        let mut request = self.client.post(url.as_str()).header("idempotency-key", pay_no.as_str()).json(&body);
        let token = self.settings.token.expose();
        if !token.is_empty() {
            request = request.bearer_auth(token);
        }
        match request.send().await {
            Ok(answer) if answer.status().is_success() => Refund::Sent,
            Ok(answer) => Refund::Failed(format!("the payment service answered {}", answer.status())),
            // The address may carry a key of the shop.
            Err(error) => Refund::Failed(crate::health::chain(&error.without_url())),
        }
    }
}
