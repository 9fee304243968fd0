//! What the admission store is asked and what it answers.
//!
//! Words only; the rules between them are in [`super::admit`].

use crate::id::{OrderNo, PrincipalId};
use crate::time::UnixMillis;

/// One user's wish to buy, with the order number it will get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaleAttempt {
    /// The buyer.
    pub user: PrincipalId,
    /// Units, 1 to 9,999.
    pub qty: u32,
    /// The number the order will have: a function of lot, user and generation, so a retry carries the same one.
    pub order_no: OrderNo,
    /// How many orders of this user for this lot were closed before, as far as the node knows: it assumes 0 and is told
    /// otherwise by [`Admit::Again`].
    pub generation: u16,
}

/// The answer to an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admit {
    /// Units are reserved and the order event is logged.
    Admitted,
    /// The user holds this reservation already.
    Replayed(Reservation),
    /// The user's earlier order was closed: the attempt must carry the number of this generation.
    Again {
        /// The generation of the next order.
        generation: u16,
    },
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
        /// When that was.
        at: StockVersion,
    },
}

/// A point in the life of a shard's stock after which it may only shrink until the version rises: units come back
/// by a release, a transfer or a new epoch, and each raises it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StockVersion {
    /// The epoch of the sale in force.
    pub epoch: u32,
    /// How often units came back in it.
    pub returns: u64,
}

/// Units a user holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// Units.
    pub qty: u32,
    /// The order's number.
    pub order_no: OrderNo,
    /// How often the order was closed and revived; with it a release that comes late cannot undo what followed.
    pub revision: u16,
}

/// What a shard knows of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// Units.
    Reserved(Reservation),
    /// Nothing any more: the next order has this generation, at least 1.
    Released {
        /// The generation of the next order.
        generation: u16,
    },
}

impl Held {
    /// The units held.
    #[must_use]
    pub fn units(&self) -> u64 {
        match self {
            Self::Reserved(reservation) => u64::from(reservation.qty),
            Self::Released { .. } => 0,
        }
    }

    /// The reservation, if that is what it is.
    #[must_use]
    pub fn reservation(&self) -> Option<&Reservation> {
        match self {
            Self::Reserved(reservation) => Some(reservation),
            Self::Released { .. } => None,
        }
    }
}

/// A reservation to give back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// Who holds it.
    pub user: PrincipalId,
    /// Exactly what is held.
    pub reservation: Reservation,
    /// Only under this epoch; `None`: under any, because whoever closed the order has read that it was live.
    pub epoch: Option<u32>,
    /// The generation of the user's next order; 0 forgets the user.
    pub generation: u16,
}

/// What became of a reservation that a late payment wants back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// The user holds it, now or before.
    Held,
    /// The user holds another order; when the ledger has refused that one, this one fits.
    Taken,
    /// Too few units are left; when the ledger has refused an order that took them, it fits.
    NoUnits,
    /// No sale is in force; the ledger alone decides.
    NoSale,
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

impl SaleState {
    /// The word for it in the store and for operators.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Paused => "paused",
            Self::Closed => "closed",
        }
    }
}

/// Terms under which a lot, or a shard of it, is sold in one epoch.
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
    /// Who holds an order, and whose order was closed.
    pub buyers: Vec<(PrincipalId, Held)>,
}

/// The sale in force for a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaleStock {
    /// Its state.
    pub state: SaleState,
    /// Units left.
    pub left: u32,
    /// Epoch, and how often units came back.
    pub at: StockVersion,
    /// The store's incarnation when it was installed.
    pub incarnation: String,
}

/// Units on their way from one shard of a lot to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// Unique within the lot and epoch.
    pub id: String,
    /// Where they go.
    pub to: u8,
    /// How many.
    pub units: u32,
}

/// A shard, counted at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The sale in force.
    pub stock: SaleStock,
    /// What the shard knows of each user.
    pub buyers: Vec<(PrincipalId, Held)>,
    /// What it gave away in this epoch.
    pub sent: Vec<Transfer>,
    /// Ids of what it got in this epoch.
    pub received: Vec<String>,
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
    /// Which of the user's orders for this lot it is; 0 is the first.
    pub generation: u16,
}

/// A claimed log entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimedEvent {
    /// A well-formed event.
    Order(OrderEvent),
    /// An entry that is no order event; nobody of ours wrote it, or it was damaged.
    Poison {
        /// The log's id for it.
        id: String,
        /// What it holds, for the operator.
        raw: String,
        /// The buyer and the order it names, where it does: a reservation may hang on it.
        names: Option<(PrincipalId, OrderNo)>,
    },
}
