//! The scripts and the model they must agree with, step by step: whatever is asked of both, both answer the same and know the
//! same afterwards.

use std::time::{SystemTime, UNIX_EPOCH};

use gateway_core::id::{OrderNo, PrincipalId};
use gateway_core::ports::{Admission, Installed};
use gateway_core::sale::{Held, Release, Reservation, Sale, SaleAttempt, SaleState, SaleTerms, Shard, Survey, Transfer};
use gateway_core::time::UnixMillis;
use gateway_stores::RedisStore;

use crate::shared::{now, redis, shard, terms};

const SALES: u64 = 60;
const STEPS: u32 = 60;

/// SplitMix64: enough for a test, and the seed says everything.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.roll(of.len() as u64)).expect("small")].clone()
    }

    fn user(&mut self) -> PrincipalId {
        PrincipalId::parse(&format!("u{}", self.roll(8))).expect("valid")
    }

    fn order_no(&mut self) -> OrderNo {
        OrderNo::parse(&format!("SKAAAAAAAAAAAAAAA{}", self.pick(&['A', 'B', 'C', 'D']))).expect("valid")
    }

    fn reservation(&mut self) -> Reservation {
        Reservation { qty: 1 + self.roll(3) as u32, order_no: self.order_no(), revision: self.roll(3) as u16 }
    }

    fn held(&mut self) -> Held {
        if self.roll(3) == 0 { Held::Released { generation: 1 + self.roll(2) as u16 } } else { Held::Reserved(self.reservation()) }
    }
}

#[tokio::test]
async fn redis_and_the_model_agree_step_by_step() {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let seed = since.as_secs();
    println!("seed {seed}");
    let store = redis();
    for sale in 0..SALES {
        let mut dice = Dice(seed.wrapping_mul(1_000) + sale);
        one_sale(&store, &mut dice).await;
    }
}

async fn one_sale(store: &RedisStore, dice: &mut Dice) {
    let shard = shard();
    // Inside the window, long before it, long after it: the clocks of the two need not agree to the second.
    let (start, end) = dice.pick(&[(-3_600_000, 3_600_000), (-3_600_000, 3_600_000), (1_800_000, 3_600_000), (-3_600_000, -1_800_000)]);
    let moved = |by: i64| UnixMillis(now().0.saturating_add_signed(by));
    let mut terms = SaleTerms { start: moved(start), end: moved(end), per_user: 1 + dice.roll(4) as u32, ..terms(1, dice.roll(12) as u32) };
    let mut buyers: Vec<(PrincipalId, Held)> = Vec::new();
    for number in 0..dice.roll(3) {
        buyers.push((PrincipalId::parse(&format!("u{number}")).expect("valid"), dice.held()));
    }
    terms.buyers = buyers;
    let mut model = Sale::new(&terms);
    assert_eq!(store.install(shard, &terms).await.expect("installs"), Installed::Yes);
    let mut trace = vec![format!("{terms:?}")];
    for _ in 0..STEPS {
        let step = step(store, shard, &mut model, dice).await;
        let agrees = step.0 == step.1;
        trace.push(format!("{}: {} {}", step.2, step.0, step.1));
        assert!(agrees, "the model and Redis answer:\n{}", trace.join("\n"));
        let survey = store.survey(shard).await.expect("answers").expect("stands still");
        assert_eq!(survey, known(&model, &survey), "after\n{}", trace.join("\n"));
    }
}

/// What a survey of the model says; the store's life is not its matter.
fn known(model: &Sale, like: &Survey) -> Survey {
    let mut survey = like.clone();
    (survey.stock.state, survey.stock.left, survey.stock.at) = (model.state(), model.left(), model.at());
    survey.buyers = model.buyers().map(|(user, held)| (user.clone(), held.clone())).collect();
    survey.sent = model.sent().cloned().collect::<Vec<Transfer>>();
    survey.received = model.received().map(str::to_owned).collect();
    survey
}

/// What the model and Redis say to the same step, and which it was.
async fn step(store: &RedisStore, shard: Shard, model: &mut Sale, dice: &mut Dice) -> (String, String, String) {
    match dice.roll(12) {
        0..=4 => {
            let attempts: Vec<_> = (0..1 + dice.roll(8))
                .map(|_| SaleAttempt {
                    user: dice.user(),
                    qty: 1 + dice.roll(5) as u32,
                    order_no: dice.order_no(),
                    generation: dice.pick(&[0, 0, 0, 1, 2]),
                })
                .collect();
            let want: Vec<_> = attempts.iter().map(|attempt| model.admit(attempt, now())).collect();
            let got = store.admit(shard, &attempts).await.expect("answers");
            (format!("{want:?}"), format!("{got:?}"), format!("admit {attempts:?}"))
        }
        5..=7 => {
            let user = dice.user();
            // Mostly what is held, so that something happens.
            let held = model.held(&user).and_then(Held::reservation).cloned().filter(|_| dice.roll(4) > 0);
            let reservation = held.unwrap_or_else(|| dice.reservation());
            let release = Release { user, reservation, epoch: dice.pick(&[None, Some(1), Some(2)]), generation: dice.roll(3) as u16 };
            let want = model.release(&release);
            let got = store.release(shard, &release).await.expect("answers");
            (format!("{want:?}"), format!("{got:?}"), format!("{release:?}"))
        }
        8 => {
            let (user, reservation) = (dice.user(), dice.reservation());
            let want = model.reserve(&user, &reservation);
            let got = store.reserve(shard, &user, &reservation).await.expect("answers");
            (format!("{want:?}"), format!("{got:?}"), format!("reserve {user} {reservation:?}"))
        }
        9 => {
            let (id, to, wanted) = (dice.pick(&["a", "b", "c"]), dice.roll(16) as u8, dice.roll(5) as u32);
            let want = model.send(id, to, wanted);
            let got = store.send(shard, id, to, wanted).await.expect("answers");
            (want.to_string(), got.to_string(), format!("send {id} {to} {wanted}"))
        }
        10 => {
            let (epoch, id, units) = (dice.pick(&[1, 1, 2]), dice.pick(&["a", "b", "c"]), 1 + dice.roll(4) as u32);
            let want = epoch == model.at().epoch && model.receive(id, units);
            let got = store.receive(shard, epoch, id, units).await.expect("answers");
            (want.to_string(), got.to_string(), format!("receive {epoch} {id} {units}"))
        }
        _ => {
            let epoch = dice.pick(&[1, 1, 1, 2]);
            let state = dice.pick(&[SaleState::Open, SaleState::Open, SaleState::Open, SaleState::Paused, SaleState::Closed]);
            let want = model.set_state(epoch, state);
            let got = store.set_state(shard, epoch, state).await.expect("answers");
            (want.to_string(), got.to_string(), format!("{state:?} under {epoch}"))
        }
    }
}
