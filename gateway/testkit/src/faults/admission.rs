//! An admission store whose calls may fail.

use async_trait::async_trait;
use gateway_core::id::{OrderNo, PrincipalId};
use gateway_core::ports::{Admission, Installed, PortResult, Store};
use gateway_core::sale::{
    Admit, ClaimedEvent, Held, OrderResult, Release, Reservation, Reserved, SaleAttempt, SaleState, SaleStock, SaleTerms, Shard,
    StockVersion, Survey,
};

use super::Faulty;

#[async_trait]
impl Admission for Faulty<dyn Admission> {
    async fn admit(&self, shard: Shard, attempts: &[SaleAttempt]) -> PortResult<Vec<Admit>> {
        self.faults.around(Store::Redis, self.port.admit(shard, attempts)).await
    }

    async fn held(&self, shard: Shard, user: &PrincipalId) -> PortResult<Option<Held>> {
        self.faults.around(Store::Redis, self.port.held(shard, user)).await
    }

    async fn install(&self, shard: Shard, terms: &SaleTerms) -> PortResult<Installed> {
        self.faults.around(Store::Redis, self.port.install(shard, terms)).await
    }

    async fn set_state(&self, shard: Shard, epoch: u32, state: SaleState) -> PortResult<bool> {
        self.faults.around(Store::Redis, self.port.set_state(shard, epoch, state)).await
    }

    async fn stock(&self, shard: Shard) -> PortResult<Option<SaleStock>> {
        self.faults.around(Store::Redis, self.port.stock(shard)).await
    }

    async fn release(&self, shard: Shard, release: &Release) -> PortResult<Option<StockVersion>> {
        self.faults.around(Store::Redis, self.port.release(shard, release)).await
    }

    async fn refuse(&self, shard: Shard, consumer: &str, id: &str, release: &Release) -> PortResult<Option<StockVersion>> {
        self.faults.around(Store::Redis, self.port.refuse(shard, consumer, id, release)).await
    }

    async fn reserve(&self, shard: Shard, user: &PrincipalId, reservation: &Reservation) -> PortResult<Reserved> {
        self.faults.around(Store::Redis, self.port.reserve(shard, user, reservation)).await
    }

    async fn send(&self, from: Shard, id: &str, to: u8, wanted: u32) -> PortResult<u32> {
        self.faults.around(Store::Redis, self.port.send(from, id, to, wanted)).await
    }

    async fn receive(&self, to: Shard, epoch: u32, id: &str, units: u32) -> PortResult<bool> {
        self.faults.around(Store::Redis, self.port.receive(to, epoch, id, units)).await
    }

    async fn survey(&self, shard: Shard) -> PortResult<Option<Survey>> {
        self.faults.around(Store::Redis, self.port.survey(shard)).await
    }

    async fn retire(&self, shard: Shard, epoch: u32) -> PortResult<bool> {
        self.faults.around(Store::Redis, self.port.retire(shard, epoch)).await
    }

    async fn claim(&self, shard: Shard, consumer: &str, max: usize) -> PortResult<Vec<ClaimedEvent>> {
        self.faults.around(Store::Redis, self.port.claim(shard, consumer, max)).await
    }

    async fn acknowledge(&self, shard: Shard, ids: &[String]) -> PortResult<()> {
        self.faults.around(Store::Redis, self.port.acknowledge(shard, ids)).await
    }

    async fn backlog(&self, shard: Shard) -> PortResult<u64> {
        self.faults.around(Store::Redis, self.port.backlog(shard)).await
    }

    async fn put_results(&self, results: &[(OrderNo, OrderResult)]) -> PortResult<()> {
        self.faults.around(Store::Redis, self.port.put_results(results)).await
    }

    async fn result(&self, order_no: &OrderNo) -> PortResult<Option<OrderResult>> {
        self.faults.around(Store::Redis, self.port.result(order_no)).await
    }

    async fn incarnation(&self, shard: Shard) -> PortResult<String> {
        self.faults.around(Store::Redis, self.port.incarnation(shard)).await
    }
}
