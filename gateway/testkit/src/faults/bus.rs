//! A bus whose calls may fail. What was subscribed to before goes on as it was.

use async_trait::async_trait;
use bytes::Bytes;
use gateway_core::id::ShopId;
use gateway_core::ports::{Bus, Inbox, PortResult, Requests, Store, Subscription};

use super::Faulty;

#[async_trait]
impl Bus for Faulty<dyn Bus> {
    async fn publish(&self, subject: &str, payload: Bytes) -> PortResult<()> {
        self.faults.around(Store::Nats, self.port.publish(subject, payload)).await
    }

    async fn subscribe(&self, subject: &str) -> PortResult<Box<dyn Subscription>> {
        self.faults.around(Store::Nats, self.port.subscribe(subject)).await
    }

    async fn serve(&self, subject: &str, group: &str) -> PortResult<Box<dyn Requests>> {
        self.faults.around(Store::Nats, self.port.serve(subject, group)).await
    }

    async fn enqueue(&self, partition: u16, shop: ShopId, payload: Bytes) -> PortResult<()> {
        self.faults.around(Store::Nats, self.port.enqueue(partition, shop, payload)).await
    }

    async fn queued(&self, shop: ShopId) -> PortResult<u64> {
        self.faults.around(Store::Nats, self.port.queued(shop)).await
    }

    async fn open_inbox(&self, partition: u16, token: u64) -> PortResult<Box<dyn Inbox>> {
        self.faults.around(Store::Nats, self.port.open_inbox(partition, token)).await
    }
}
