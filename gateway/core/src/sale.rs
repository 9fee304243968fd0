//! The flash sale: what an attempt, a reservation and an order are, and the rules between them.

pub mod admit;
pub mod order_no;
pub mod purchase;

pub use admit::Sale;
pub use order_no::{OrderKey, order_no};
pub use purchase::Purchase;

use crate::id::{ActivityId, Lot, OrderNo, PrincipalId, SkuId};
use crate::time::UnixMillis;

/// One user's wish to buy, with the order number it will get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaleAttempt {
    /// The buyer.
    pub user: PrincipalId,
    /// Units, 1 to 9,999.
    pub qty: u32,
    /// The number the order will have: a function of lot and user, so a retry carries the same one.
    pub order_no: OrderNo,
}

/// The answer to an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admit {
    /// Units are reserved and the order event is logged.
    Admitted,
    /// The user holds this reservation already.
    Replayed(Reservation),
    /// The window has not opened.
    NotStarted,
    /// The window is over, or the sale was closed.
    Ended,
    /// No sale is in force, or it is paused while its stock is rebuilt.
    NotReady,
    /// More units than one user may have.
    LimitExceeded,
    /// Fewer units are left than were asked for.
    SoldOut {
        /// What is left.
        left: u32,
    },
}

/// What a user holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// Units.
    pub qty: u32,
    /// The order's number.
    pub order_no: OrderNo,
}

/// State of a sale in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SaleState {
    /// Attempts are judged by window and stock.
    Open,
    /// Attempts are put off while the stock is rebuilt.
    Paused,
    /// No attempt is admitted any more.
    Closed,
}

/// Terms under which a lot is sold in one epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaleTerms {
    /// Raised at each pre-heat and each rebuild; the ledger accepts events of the current one only.
    pub epoch: u32,
    /// First instant of the window.
    pub start: UnixMillis,
    /// First instant after the window.
    pub end: UnixMillis,
    /// Units one user may have, at least 1.
    pub per_user: u32,
    /// Units for sale.
    pub left: u32,
    /// Who holds an order already.
    pub buyers: Vec<(PrincipalId, Reservation)>,
}

/// The sale in force for a lot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaleStock {
    /// Its epoch.
    pub epoch: u32,
    /// Its state.
    pub state: SaleState,
    /// Units left.
    pub left: u32,
    /// The store's incarnation when it was installed.
    pub incarnation: String,
}

/// An order event as the admission store logged it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderEvent {
    /// The log's id for it.
    pub id: String,
    /// The order's number.
    pub order_no: OrderNo,
    /// The buyer.
    pub user: PrincipalId,
    /// Units.
    pub qty: u32,
    /// The epoch it was admitted in.
    pub epoch: u32,
}

/// A claimed log entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimedEvent {
    /// A well-formed event.
    Order(OrderEvent),
    /// An entry that is no order event; nobody of ours wrote it.
    Poison {
        /// The log's id for it.
        id: String,
        /// What it holds, for the operator.
        raw: String,
    },
}

/// What the ledger made of an order event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persisted {
    /// The order exists, written now or before.
    Stored,
    /// The event belongs to an epoch that is over; the buyer may try again.
    Stale,
    /// No unit was left for it.
    SoldOut,
    /// The user has another live order for this lot.
    Duplicate,
}

/// The final result of an order number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrderResult {
    /// The order exists.
    Success {
        /// Whose it is.
        user: PrincipalId,
    },
    /// There is no order.
    Fail {
        /// Whose it would have been.
        user: PrincipalId,
        /// Why, for the client.
        message: String,
    },
}

impl OrderResult {
    /// Whose result it is; anybody else is told that it does not exist.
    #[must_use]
    pub fn user(&self) -> &PrincipalId {
        match self {
            Self::Success { user } | Self::Fail { user, .. } => user,
        }
    }
}

/// Life of an activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ActivityState {
    /// Being written; nothing is locked.
    Draft,
    /// Its units are locked; its lots can be pre-heated and sold.
    Published,
    /// Its window is over or it was closed; events drain.
    Closing,
    /// Units and locks are settled.
    Settled,
}

impl ActivityState {
    /// The word shown to operators.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Published => "published",
            Self::Closing => "closing",
            Self::Settled => "settled",
        }
    }
}

/// A SKU to create or top up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkuUpsert {
    /// Its id.
    pub sku: SkuId,
    /// Its name.
    pub name: String,
    /// Its price in cents.
    pub price_cents: u64,
    /// Units to add.
    pub add_stock: u32,
}

/// An activity to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewActivity {
    /// Its title.
    pub title: String,
    /// First instant of the window.
    pub start: UnixMillis,
    /// First instant after the window; later than `start`.
    pub end: UnixMillis,
    /// How long an order may stay unpaid, in seconds.
    pub pay_ttl_s: u16,
    /// At least one product, each SKU once.
    pub products: Vec<NewProduct>,
}

/// A product of a new activity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewProduct {
    /// Its SKU.
    pub sku: SkuId,
    /// Its price in cents.
    pub price_cents: u64,
    /// Units for sale, at least 1.
    pub stock: u32,
    /// Units one user may have, at least 1.
    pub per_user: u16,
}

/// What became of a creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateOutcome {
    /// The draft's id.
    Created(ActivityId),
    /// This SKU does not exist.
    UnknownSku(SkuId),
}

/// What became of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishOutcome {
    /// Published, now or before.
    Published,
    /// No such activity.
    NotFound,
    /// The activity is past that.
    WrongState(ActivityState),
    /// The SKU has fewer free units than the product needs; nothing was locked.
    NotEnough(SkuId),
}

/// An activity as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityRecord {
    /// Its id.
    pub id: ActivityId,
    /// Its title.
    pub title: String,
    /// First instant of the window.
    pub start: UnixMillis,
    /// First instant after the window.
    pub end: UnixMillis,
    /// How long an order may stay unpaid, in seconds.
    pub pay_ttl_s: u16,
    /// Where it is in its life.
    pub state: ActivityState,
    /// Its products.
    pub products: Vec<LotRecord>,
}

/// A lot as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LotRecord {
    /// Which.
    pub lot: Lot,
    /// The SKU's name.
    pub name: String,
    /// Its activity's state.
    pub state: ActivityState,
    /// First instant of the window.
    pub start: UnixMillis,
    /// First instant after the window.
    pub end: UnixMillis,
    /// Price in cents.
    pub price_cents: u64,
    /// Units of the lot.
    pub stock: u32,
    /// Units in live orders.
    pub sold: u32,
    /// Units one user may have.
    pub per_user: u16,
    /// 0 before the first pre-heat.
    pub epoch: u32,
    /// Sum of live orders, counted from the order rows.
    pub live: u64,
    /// The SKU's units, sold ones gone.
    pub sku_stock: u32,
    /// The SKU's units promised to unsettled activities.
    pub sku_locked: u32,
}

/// State of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OrderState {
    /// Waiting for payment.
    Unpaid,
    /// Paid.
    Paid,
    /// Closed unpaid.
    Closed,
}

/// An order as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderRecord {
    /// Its number.
    pub order_no: OrderNo,
    /// Its buyer.
    pub user: PrincipalId,
    /// Its lot.
    pub lot: Lot,
    /// Units.
    pub qty: u32,
    /// Its state.
    pub state: OrderState,
}
