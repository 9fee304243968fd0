//! Agents: who is registered, how each is, and how much work it has. What never happens here: giving it any (`handovers`).

use gateway_core::chat::{AgentLoad, AgentState, Serving};
use gateway_core::id::{PrincipalId, ShopId};
use gateway_core::time::UnixMillis;

use super::super::json::Rows;
use super::super::rows::read_principal;
use super::super::time::{datetime, millis};
use super::super::{MysqlStore, Trouble};

/// Agents in one list (the port's word).
const AGENTS_MAX: u32 = 1_000;

/// Agents of a shop with what they have to do.
macro_rules! select_loads {
    ($rest:literal) => {
        concat!(
            "select a.admin_id, a.state, a.open_max, cast(coalesce(sum(s.cum_user - s.admin_seen - s.admin_recalled), 0) as unsigned), \
             count(s.id) from agent a \
             left join chat_session s on s.shop_id = a.shop_id and s.admin_id = a.admin_id and s.status = 0 \
             where a.shop_id = ? ",
            $rest
        )
    };
}

type LoadRow = (String, u8, Option<u32>, u64, i64);

impl MysqlStore {
    pub(super) async fn write_agent(&self, shop: ShopId, agent: &PrincipalId, now: UnixMillis) -> Result<(), Trouble> {
        let now = datetime(now);
        sqlx::query(
            "insert into agent (shop_id, admin_id, created_at, seen_at) values (?, ?, ?, ?) \
             on duplicate key update seen_at = greatest(seen_at, ?)",
        )
        .bind(shop.0)
        .bind(agent.as_str())
        .bind(&now)
        .bind(&now)
        .bind(&now)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    pub(super) async fn write_state(
        &self,
        shop: ShopId,
        agent: &PrincipalId,
        state: AgentState,
        open_max: Option<u32>,
    ) -> Result<(), Trouble> {
        sqlx::query("update agent set state = ?, open_max = coalesce(?, open_max) where shop_id = ? and admin_id = ?")
            .bind(state_number(state))
            .bind(open_max)
            .bind(shop.0)
            .bind(agent.as_str())
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    pub(super) async fn write_seen(&self, agents: &[(ShopId, PrincipalId)], now: UnixMillis) -> Result<(), Trouble> {
        if agents.is_empty() {
            return Ok(());
        }
        // In one order, so that two nodes that saw the same agents do not wait for each other.
        let mut agents: Vec<_> = agents.iter().collect();
        agents.sort_unstable();
        sqlx::query(
            "update json_table(?, '$[*]' columns (shop_id bigint unsigned path '$[0]', \
             admin_id varchar(64) character set ascii collate ascii_bin path '$[1]')) n \
             straight_join agent a force index (primary) on a.shop_id = n.shop_id and a.admin_id = n.admin_id set a.seen_at = greatest(a.seen_at, ?)",
        )
        .bind(Rows::of(agents, |row, (shop, agent)| row.number(shop.0).text(agent.as_str())))
        .bind(datetime(now))
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    pub(super) async fn read_agents(&self, shop: ShopId) -> Result<Vec<AgentLoad>, Trouble> {
        let rows: Vec<LoadRow> = sqlx::query_as(select_loads!("group by a.admin_id, a.state, a.open_max order by a.admin_id limit ?"))
            .bind(shop.0)
            .bind(AGENTS_MAX)
            .fetch_all(&self.pool)
            .await?;
        rows.into_iter().map(read_load).collect()
    }

    pub(super) async fn read_agent(&self, shop: ShopId, agent: &PrincipalId) -> Result<Option<AgentLoad>, Trouble> {
        let row: Option<LoadRow> = sqlx::query_as(select_loads!("and a.admin_id = ? group by a.admin_id, a.state, a.open_max"))
            .bind(shop.0)
            .bind(agent.as_str())
            .fetch_optional(&self.pool)
            .await?;
        row.map(read_load).transpose()
    }

    pub(super) async fn read_serving(&self, after: Option<(ShopId, &PrincipalId)>, max: u32) -> Result<Vec<Serving>, Trouble> {
        // Nobody's id is empty, and the first condition alone is one that an index can begin at.
        let (shop, agent) = after.map_or((0, ""), |(shop, agent)| (shop.0, agent.as_str()));
        let rows: Vec<(u64, String, u8, u64, i64)> = sqlx::query_as(concat!(
            "select a.shop_id, a.admin_id, a.state, ",
            millis!("a.seen_at"),
            ", (select count(*) from chat_session s where s.shop_id = a.shop_id and s.admin_id = a.admin_id and s.status = 0) as sessions \
             from agent a where a.shop_id >= ? and (a.shop_id > ? or a.admin_id > ?) having sessions > 0 \
             order by a.shop_id, a.admin_id limit ?"
        ))
        .bind(shop)
        .bind(shop)
        .bind(agent)
        .bind(max.min(AGENTS_MAX))
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|(shop, agent, state, seen_at, open)| {
                let (agent, state) = (read_principal(&agent)?, read_state(state)?);
                Ok(Serving { shop: ShopId(shop), agent, state, seen_at: UnixMillis(seen_at), open_sessions: open.unsigned_abs() })
            })
            .collect()
    }
}

fn read_load((agent, state, open_max, unread, open): LoadRow) -> Result<AgentLoad, Trouble> {
    let (agent, state) = (read_principal(&agent)?, read_state(state)?);
    Ok(AgentLoad { agent, state, unread, open_sessions: open.unsigned_abs(), open_max })
}

/// `agent.state`.
fn state_number(state: AgentState) -> u8 {
    match state {
        AgentState::Online => 0,
        AgentState::Away => 1,
        AgentState::Busy => 2,
        AgentState::Offline => 3,
    }
}

fn read_state(number: u8) -> Result<AgentState, Trouble> {
    let state = AgentState::ALL.into_iter().find(|state| state_number(*state) == number);
    state.ok_or(Trouble::Damaged("the state of an agent"))
}
