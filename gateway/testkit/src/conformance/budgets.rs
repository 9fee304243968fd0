//! What every [`Budgets`] promises.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::policy::{Charge, Refusal, Scope};
use gateway_core::ports::{Budgets, ChargeOutcome};

use super::{Fresh, eventually};

/// A window so long that nothing refills while a check runs.
const HOUR_MS: u32 = 3_600_000;

/// Every check.
pub async fn all(store: &Arc<dyn Budgets>, fresh: &Fresh) {
    the_whole_limit_fits_at_once_and_no_more(&**store, fresh).await;
    all_accounts_are_charged_or_none(&**store, fresh).await;
    charges_to_one_account_add_up(&**store, fresh).await;
    accounts_differ_by_budget_and_by_key(&**store, fresh).await;
    a_repeated_token_is_free(&**store, fresh).await;
    one_call_carries_sixty_four_charges(&**store, fresh).await;
    racing_callers_share_one_limit(store, fresh).await;
    an_account_recovers_at_its_rate(&**store, fresh).await;
    retry_after_is_long_enough(&**store, fresh).await;
}

fn charge(key: &str, limit: u32, window_ms: u32, cost: u32) -> Charge {
    Charge {
        budget: "conformance".to_owned(),
        key: key.to_owned(),
        limit,
        window_ms,
        cost,
        scope: Scope::Cluster,
        replay_token: None,
        refusal: Refusal { status: 429, code: "RATE_LIMITED".to_owned(), message: "slow down".to_owned(), retry_after_ms: None },
    }
}

fn with_token(token: &str, charge: Charge) -> Charge {
    Charge { replay_token: Some(token.to_owned()), ..charge }
}

async fn fits(store: &dyn Budgets, charges: &[Charge]) -> bool {
    store.charge(charges).await.expect("charge") == ChargeOutcome::Charged
}

async fn exhausted(store: &dyn Budgets, charges: &[Charge]) -> (usize, Duration) {
    match store.charge(charges).await.expect("charge") {
        ChargeOutcome::Exhausted { index, retry_after } => (index, retry_after),
        ChargeOutcome::Charged => panic!("charged beyond the limit: {charges:?}"),
    }
}

/// A full burst, to the unit, also where the limit does not divide the window.
pub async fn the_whole_limit_fits_at_once_and_no_more(store: &dyn Budgets, fresh: &Fresh) {
    for limit in [1, 2, 7, 30] {
        let key = fresh.word("burst");
        for n in 0..limit {
            assert!(fits(store, &[charge(&key, limit, HOUR_MS, 1)]).await, "charge {n} of {limit}");
        }
        let (index, retry_after) = exhausted(store, &[charge(&key, limit, HOUR_MS, 1)]).await;
        let share = Duration::from_millis(u64::from(HOUR_MS / limit)) + Duration::from_millis(1);
        assert!(index == 0 && retry_after > Duration::ZERO && retry_after <= share, "{retry_after:?} for a limit of {limit}");
    }
    assert!(fits(store, &[charge(&fresh.word("burst"), 30, HOUR_MS, 30)]).await, "one charge of the whole limit");
}

/// The first exhausted charge is named, and nothing is booked anywhere.
pub async fn all_accounts_are_charged_or_none(store: &dyn Budgets, fresh: &Fresh) {
    let [free, spent, also_spent] = ["free", "spent", "spent"].map(|word| fresh.word(word));
    assert!(fits(store, &[charge(&spent, 1, HOUR_MS, 1), charge(&also_spent, 1, HOUR_MS, 1)]).await);
    let all = [charge(&free, 1, HOUR_MS, 1), charge(&spent, 1, HOUR_MS, 1), charge(&also_spent, 1, HOUR_MS, 1)];
    for _ in 0..3 {
        assert_eq!(exhausted(store, &all).await.0, 1, "the first exhausted one in order");
    }
    assert!(fits(store, &all[..1]).await, "a refused call must leave no charge behind");
    assert!(fits(store, &[]).await, "nothing to charge");
}

/// Two charges to one account in one call count twice.
pub async fn charges_to_one_account_add_up(store: &dyn Budgets, fresh: &Fresh) {
    let key = fresh.word("sum");
    let three = charge(&key, 5, HOUR_MS, 3);
    assert_eq!(exhausted(store, &[three.clone(), three.clone()]).await.0, 1);
    assert!(fits(store, &[three, charge(&key, 5, HOUR_MS, 2)]).await);
    assert_eq!(exhausted(store, &[charge(&key, 5, HOUR_MS, 1)]).await.0, 0);
}

/// An account is a budget and a key, both.
pub async fn accounts_differ_by_budget_and_by_key(store: &dyn Budgets, fresh: &Fresh) {
    let key = fresh.word("whose");
    assert!(fits(store, &[charge(&key, 1, HOUR_MS, 1)]).await);
    assert!(fits(store, &[Charge { budget: "other".to_owned(), ..charge(&key, 1, HOUR_MS, 1) }]).await);
    assert!(fits(store, &[charge(&fresh.word("whose"), 1, HOUR_MS, 1)]).await);
    for odd in ["2001:db8::/64", "用户 {1}", "a b\"c\\d"] {
        let key = format!("{odd}{key}");
        assert!(fits(store, &[charge(&key, 1, HOUR_MS, 1)]).await, "{odd}");
        assert_eq!(exhausted(store, &[charge(&key, 1, HOUR_MS, 1)]).await.0, 0, "{odd}");
    }
}

/// The same request again costs nothing; another one takes its place; a refused one does not.
pub async fn a_repeated_token_is_free(store: &dyn Budgets, fresh: &Fresh) {
    let key = fresh.word("replay");
    let once = || charge(&key, 1, HOUR_MS, 1);
    for _ in 0..3 {
        assert!(fits(store, &[with_token("t1", once())]).await, "the same token is free");
    }
    assert_eq!(exhausted(store, &[with_token("t2", once())]).await.0, 0, "another token pays");
    assert_eq!(exhausted(store, &[once()]).await.0, 0, "no token pays");
    assert!(fits(store, &[with_token("t1", once())]).await, "a refused token is not remembered");

    let key = fresh.word("replay");
    let twice = || charge(&key, 2, HOUR_MS, 1);
    assert!(fits(store, &[with_token("t1", twice())]).await);
    assert!(fits(store, &[with_token("t2", twice())]).await);
    assert_eq!(exhausted(store, &[with_token("t1", twice())]).await.0, 0, "only the last token charged is remembered");
    assert!(fits(store, &[with_token("t2", twice())]).await);

    // A replay is free in its own account only.
    let other = fresh.word("replay");
    assert!(fits(store, &[with_token("t2", twice()), with_token("t2", charge(&other, 1, HOUR_MS, 1))]).await);
    assert_eq!(exhausted(store, &[charge(&other, 1, HOUR_MS, 1)]).await.0, 0);
}

/// The port's bound can be used.
pub async fn one_call_carries_sixty_four_charges(store: &dyn Budgets, fresh: &Fresh) {
    let mut charges: Vec<_> = (0..64).map(|_| charge(&fresh.word("wide"), 1, HOUR_MS, 1)).collect();
    assert!(fits(store, &charges).await);
    charges.rotate_left(1);
    assert_eq!(exhausted(store, &charges).await.0, 0);
}

/// One call is one atomic step.
pub async fn racing_callers_share_one_limit(store: &Arc<dyn Budgets>, fresh: &Fresh) {
    let key = fresh.word("race");
    let race = |_| {
        let (store, charge) = (Arc::clone(store), charge(&key, 10, HOUR_MS, 1));
        tokio::spawn(async move { fits(&*store, &[charge]).await })
    };
    let racers: Vec<_> = (0..64).map(race).collect();
    let mut charged = 0;
    for racer in racers {
        charged += u32::from(racer.await.expect("racer"));
    }
    assert_eq!(charged, 10);
}

/// Two charges of the whole limit are at least a window apart, and no more is asked for than waiting.
pub async fn an_account_recovers_at_its_rate(store: &dyn Budgets, fresh: &Fresh) {
    let (key, window_ms) = (fresh.word("recover"), 300);
    let before = Instant::now();
    assert!(fits(store, &[charge(&key, 3, window_ms, 3)]).await);
    eventually("one unit comes back", || async { fits(store, &[charge(&key, 3, window_ms, 1)]).await.then_some(()) }).await;
    let one = before.elapsed();
    assert!(one >= Duration::from_millis(98), "a third of the window pays for a third of the limit, came after {one:?}");
    eventually("the whole limit comes back", || async { fits(store, &[charge(&key, 3, window_ms, 3)]).await.then_some(()) }).await;
    let whole = before.elapsed();
    assert!(whole >= Duration::from_millis(398), "four units need four thirds of the window, came after {whole:?}");
}

/// Who waits as long as told is let in.
pub async fn retry_after_is_long_enough(store: &dyn Budgets, fresh: &Fresh) {
    let key = fresh.word("wait");
    let one = [charge(&key, 1, 200, 1)];
    assert!(fits(store, &one).await);
    let (_, retry_after) = exhausted(store, &one).await;
    assert!(retry_after <= Duration::from_millis(201), "{retry_after:?} in a window of 200 ms");
    // A millisecond for a store whose clock ticks in milliseconds. This wait is the behaviour under test.
    tokio::time::sleep(retry_after + Duration::from_millis(1)).await;
    assert!(fits(store, &one).await, "still exhausted after {retry_after:?}");
}
