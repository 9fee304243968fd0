//! The people: each buys, pays, cancels and repeats itself, and remembers what it was told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gateway_core::id::{Lot, OrderNo, PayNo, PrincipalId};
use gateway_core::ports::PortResult;
use gateway_core::sale::{Admit, PayOutcome, SaleAttempt, SaleState, Shard};

use super::{Ports, Process, user};
use crate::dice::Dice;

/// Processes of the crowd.
pub(super) const PEOPLE: usize = 8;

/// Buyers; fewer than people have turns, so that they race themselves.
const USERS: usize = 9;

/// What everybody was told.
#[derive(Default)]
pub(super) struct Tally {
    /// Order numbers that were given out, and to whom.
    pub(super) accepted: BTreeMap<OrderNo, PrincipalId>,
    /// Payments, the order each is for, and what was answered; `None`: nothing yet.
    pub(super) payments: BTreeMap<PayNo, (OrderNo, Option<PayOutcome>)>,
    /// How often each payment was sent back.
    pub(super) refunds: BTreeMap<PayNo, u32>,
    /// Promises broken on the way.
    pub(super) broken: Vec<String>,
}

impl Tally {
    pub(super) fn refunded(&mut self, pay_no: &PayNo) {
        *self.refunds.entry(pay_no.clone()).or_default() += 1;
    }

    /// A payment heard `told`: what was said once is said again.
    pub(super) fn paid(&mut self, pay_no: &PayNo, told: PayOutcome) {
        let Some((order_no, before)) = self.payments.get_mut(pay_no) else { return };
        match before {
            None | Some(PayOutcome::NotFound) => *before = Some(told),
            // Two questions at once are answered in any order: this one came before there was an order.
            Some(_) if told == PayOutcome::NotFound => {}
            Some(before) if *before == told => {}
            Some(before) => self.broken.push(format!("{pay_no} for {order_no} was told {before:?}, then {told:?}")),
        }
    }
}

pub(super) fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the people go.
#[derive(Clone, Copy)]
pub(super) struct Crowd {
    lot: Lot,
    shards: u8,
}

/// One of them.
struct Person {
    crowd: Crowd,
    number: u64,
    turns: u64,
    ports: Ports,
    dice: Arc<Dice>,
    tally: Arc<Mutex<Tally>>,
}

impl Crowd {
    pub(super) fn of(lot: Lot, shards: u8) -> Self {
        Self { lot, shards }
    }

    pub(super) fn person(&self, number: u64, ports: Ports, dice: Arc<Dice>, tally: Arc<Mutex<Tally>>) -> Process {
        let mut person = Person { crowd: *self, number, turns: 0, ports, dice, tally };
        Box::pin(async move {
            loop {
                person.ports.pause().await;
                person.turns += 1;
                // Whoever meets a fault tries something else: everything can be asked again.
                let _ = person.act().await;
            }
        })
    }
}

impl Person {
    async fn act(&self) -> PortResult<()> {
        match self.dice.below(10) {
            0..=4 => self.buy().await,
            5 | 6 => self.pay().await,
            7 | 8 => self.cancel().await,
            _ if self.crowd.shards > 1 => self.borrow_units().await,
            _ => self.buy().await,
        }
    }

    fn accept(&self, order_no: &OrderNo, user: &PrincipalId) {
        let known = lock(&self.tally).accepted.insert(order_no.clone(), user.clone());
        if known.is_some_and(|known| known != *user) {
            lock(&self.tally).broken.push(format!("{order_no} was given to two buyers"));
        }
    }

    async fn buy(&self) -> PortResult<()> {
        let number = self.dice.below(USERS);
        let (user, qty) = (user(number), 1 + self.dice.below(2) as u32);
        let shard = Shard::of(self.crowd.lot, &user, self.crowd.shards);
        let mut generation = 0;
        for _ in 0..3 {
            let attempt = SaleAttempt { user: user.clone(), qty, order_no: number_of(number, generation), generation };
            let answers = self.ports.admission.admit(shard, std::slice::from_ref(&attempt)).await?;
            match answers.into_iter().next() {
                Some(Admit::Admitted) => {
                    self.accept(&attempt.order_no, &user);
                    return Ok(());
                }
                Some(Admit::Replayed(held)) => {
                    self.accept(&held.order_no, &user);
                    return Ok(());
                }
                Some(Admit::Again { generation: told }) => generation = told,
                Some(Admit::NotStarted | Admit::Ended | Admit::NotReady | Admit::LimitExceeded | Admit::SoldOut { .. }) | None => {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn some_order(&self) -> Option<(OrderNo, PrincipalId)> {
        let accepted: Vec<_> = lock(&self.tally).accepted.iter().map(|(order_no, user)| (order_no.clone(), user.clone())).collect();
        self.dice.pick(&accepted).cloned()
    }

    async fn pay(&self) -> PortResult<()> {
        let Some((mut order_no, _)) = self.some_order() else { return Ok(()) };
        let known: Vec<_> = lock(&self.tally).payments.iter().map(|(pay_no, (order_no, _))| (pay_no.clone(), order_no.clone())).collect();
        let mut pay_no = PayNo::parse(&format!("pay-{}-{}", self.number, self.turns)).expect("well-formed");
        // A provider repeats itself until it is heard.
        if self.dice.chance(400)
            && let Some((known_pay_no, known_order)) = self.dice.pick(&known).cloned()
        {
            (pay_no, order_no) = (known_pay_no, known_order);
        }
        lock(&self.tally).payments.entry(pay_no.clone()).or_insert_with(|| (order_no.clone(), None));
        let told = self.ports.ledger.pay(&order_no, &pay_no, self.ports.now()).await?;
        lock(&self.tally).paid(&pay_no, told);
        Ok(())
    }

    async fn cancel(&self) -> PortResult<()> {
        let Some((order_no, user)) = self.some_order() else { return Ok(()) };
        self.ports.ledger.cancel(&order_no, &user, self.ports.now()).await?;
        Ok(())
    }

    /// What a node does whose shard is empty.
    async fn borrow_units(&self) -> PortResult<()> {
        let shards: Vec<_> = Shard::all(self.crowd.lot, self.crowd.shards).collect();
        let (Some(from), Some(to)) = (self.dice.pick(&shards), self.dice.pick(&shards)) else { return Ok(()) };
        if from == to {
            return Ok(());
        }
        let Some(stock) = self.ports.admission.stock(*from).await?.filter(|stock| stock.state == SaleState::Open) else { return Ok(()) };
        let id = format!("{}-{}", self.ports.name, self.turns);
        let units = self.ports.admission.send(*from, &id, to.index, stock.left.div_ceil(2)).await?;
        if units > 0 {
            self.ports.admission.receive(*to, stock.at.epoch, &id, units).await?;
        }
        Ok(())
    }
}

/// A number that says whose order it is and of which generation.
fn number_of(user: usize, generation: u16) -> OrderNo {
    let letters = [user, usize::from(generation) / 26, usize::from(generation) % 26];
    let text: String = letters.iter().map(|place| char::from(b'A' + (place % 26) as u8)).collect();
    OrderNo::parse(&format!("SK{text}AAAAAAAAAAAAA")).expect("well-formed")
}
