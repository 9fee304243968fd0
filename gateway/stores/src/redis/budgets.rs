//! Rate accounts in Redis. The rule runs in `lua/budget/charge.lua`; this file does the divisions that need more than
//! the 53 bits of a Lua number.

use std::sync::LazyLock;
use std::time::Duration;

use async_trait::async_trait;
use gateway_core::policy::Charge;
use gateway_core::policy::budget::account_of;
use gateway_core::ports::{Budgets, ChargeOutcome, PortResult};

use super::script::Script;
use super::{RedisStore, nonsense};
use crate::error::failed;

static CHARGE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../../../lua/budget/charge.lua")));

#[async_trait]
impl Budgets for RedisStore {
    async fn charge(&self, charges: &[Charge]) -> PortResult<ChargeOutcome> {
        const DOING: &str = "charge budgets";
        if charges.is_empty() {
            return Ok(ChargeOutcome::Charged);
        }
        // One call charges all accounts or none, and in a Cluster a script keeps to one slot: there all accounts live together, on
        // one of its servers.
        let one_slot = self.link.is_cluster();
        let mut call = CHARGE.call();
        for charge in charges {
            call.key(if one_slot { format!("budget:{{b}}:{}", account_of(charge)) } else { format!("budget:{{{}}}", account_of(charge)) });
            let limit = u64::from(charge.limit.max(1));
            let window_us = u64::from(charge.window_ms) * 1_000;
            let owed = u64::from(charge.cost) * window_us;
            call.arg(window_us).arg(limit).arg(owed / limit).arg(owed % limit).arg(charge.replay_token.as_deref().unwrap_or(""));
        }
        let answer: Vec<u64> = self.script(DOING, &call).await?;
        match *answer {
            [0] => Ok(ChargeOutcome::Charged),
            [number, retry_after_us] if (1..=charges.len() as u64).contains(&number) => {
                let index = usize::try_from(number - 1).unwrap_or(usize::MAX);
                Ok(ChargeOutcome::Exhausted { index, retry_after: Duration::from_micros(retry_after_us) })
            }
            _ => Err(failed(DOING, nonsense(&format!("{answer:?}")))),
        }
    }
}
