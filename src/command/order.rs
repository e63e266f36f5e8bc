//! `sluice rollout pause` to `unfreeze`: an operator's orders to plans that enforce (HIS-3 to HIS-5).

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde::de::DeserializeOwned;
use serde_json::json;
use sluice_admin_api::endpoints::Endpoint;
use sluice_admin_api::parameters::{Parameters, PlanParameters};
use sluice_admin_api::rollouts::{FrozenPlans, PlanState};

use super::arguments::{AnswerForm, RelayArguments};
use super::console::Console;
use super::list::path;
use super::list::view::plan_step;
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::table::joined;
use super::text::{parse_duration, safe};
use super::typed::jsons;
use sluice_setting::hours;
use sluice_text::encoded;

/// The longest freeze; the relay has the same limit (HIS-4).
const FREEZE_MAX: Duration = hours(7 * 24);

/// Orders to plans with `mode: enforce`.
#[derive(Debug, Subcommand)]
pub enum RolloutOrder {
    /// Stop a push where it is: clients keep what they have, and no step follows.
    #[command(after_help = PAUSE_HELP)]
    Pause(OfPush),
    /// Let a push go on that an operator paused.
    #[command(after_help = RESUME_HELP)]
    Resume(OfPush),
    /// Let a push go on to more clients at once, without evidence.
    #[command(after_help = PROMOTE_HELP)]
    Promote(Promote),
    /// Halt a push: all clients go back to the content before.
    #[command(after_help = ABORT_HELP)]
    Abort(Abort),
    /// Leave one class out of a halted push, and let the other classes go on.
    #[command(after_help = BAR_HELP)]
    Bar(Bar),
    /// Serve an earlier release to all clients at once.
    #[command(after_help = PIN_HELP)]
    Pin(Pin),
    /// End a pin: what waits goes to the clients step by step.
    #[command(after_help = UNPIN_HELP)]
    Unpin(Unpin),
    /// Serve the release before a push to all clients at once, until the next push.
    #[command(after_help = ROLLBACK_HELP)]
    Rollback(OfPush),
    /// Begin no push in any plan that enforces for a time, and pause those under way.
    #[command(after_help = FREEZE_HELP)]
    Freeze(Freeze),
    /// End a freeze.
    #[command(after_help = UNFREEZE_HELP)]
    Unfreeze(Unfreeze),
}

/// The arguments of every order.
#[derive(Args, Debug)]
pub struct OrderArguments {
    /// The name of the operator, for the log of the relay. The log has the address of the caller, too.
    #[arg(long = "as", value_name = "NAME")]
    by: Option<String>,
    /// The reason, for the log of the relay.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// For this relay alone, whatever the ledger of the replicas says, or if it is away.
    #[arg(long)]
    here: bool,
    /// Form of the output; json: the answer of the API, with `relay`.
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORM", default_value_t = AnswerForm::Table)]
    form: AnswerForm,
    #[command(flatten)]
    reach: RelayArguments,
}

#[derive(Args, Debug)]
pub struct OfPush {
    /// The plan, as in the configuration.
    plan: String,
    /// The push that you mean, from `sluice rollout status`. If another one is under way, nothing is done.
    #[arg(long, value_name = "N")]
    push: u64,
    #[command(flatten)]
    common: OrderArguments,
}

#[derive(Args, Debug)]
pub struct Promote {
    #[command(flatten)]
    order: OfPush,
    /// The step to go to, from 1. A halted push begins anew with step 1 if you name none.
    #[arg(long, value_name = "N", conflicts_with = "all")]
    step: Option<u8>,
    /// To all clients. The final bake follows.
    #[arg(long)]
    all: bool,
}

#[derive(Args, Debug)]
pub struct Abort {
    #[command(flatten)]
    order: OfPush,
    /// A resource whose new content no later push may bring, as `Cluster/payments`. Repeatable.
    #[arg(long, value_name = "TYPE/NAME", value_parser = content)]
    condemn: Vec<String>,
}

#[derive(Args, Debug)]
pub struct Bar {
    #[command(flatten)]
    order: OfPush,
    /// The digest of the class, or its beginning: `sluice rollout status -o wide` has those that are blamed.
    #[arg(long, value_name = "DIGEST")]
    class: String,
}

#[derive(Args, Debug)]
pub struct Pin {
    /// The plan, as in the configuration.
    plan: String,
    /// The release, by the push that brought it; 0: the content before the first push.
    #[arg(long, value_name = "N")]
    to: u64,
    /// The end of the pin.
    #[arg(long, value_enum, required_unless_present = "length", conflicts_with = "length")]
    until: Option<PinEnd>,
    /// The time after which the pin ends.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    length: Option<Duration>,
    #[command(flatten)]
    common: OrderArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PinEnd {
    /// The next change by the control plane, which goes step by step.
    NextPush,
    /// `sluice rollout unpin`.
    Unpin,
}

#[derive(Args, Debug)]
pub struct Unpin {
    /// The plan, as in the configuration.
    plan: String,
    #[command(flatten)]
    common: OrderArguments,
}

#[derive(Args, Debug)]
pub struct Freeze {
    /// The time after which the freeze ends by itself; at most 7d.
    #[arg(long = "for", value_name = "TIME", default_value = "4h", value_parser = freeze_time)]
    length: Duration,
    #[command(flatten)]
    common: OrderArguments,
}

#[derive(Args, Debug)]
pub struct Unfreeze {
    #[command(flatten)]
    common: OrderArguments,
}

/// The output and the exit codes of all orders.
macro_rules! help {
    ($text:literal, $first:literal, $second:literal) => {
        concat!(
            $text,
            "\n\nOutput:\n  a line for each relay: the plan, its state and its push after the order\n\nExamples:\n  sluice rollout ",
            $first,
            "\n  sluice rollout ",
            $second,
            "\n\nExit codes: 0 done, or already so; 64 wrong arguments, or no such plan, release, class or content; 65 another \
             push is under way, or its state does not allow the order: nothing was done; 69 no relay answered."
        )
    };
}

const PAUSE_HELP: &str = help!(
    "Clients with the push keep it, the others keep the content before. Endpoints go on. It lasts until `resume`, `promote` or `abort`.",
    "pause edge --push 42",
    "pause edge --push 42 --reason outage"
);

const RESUME_HELP: &str = help!(
    "The bake of the step goes on where it stood.",
    "resume edge --push 42",
    "resume edge --push 42 -o json"
);

const PROMOTE_HELP: &str = help!(
    "For a push that is right although a step lacks evidence, or that cannot wait for its bakes. Name the step, or all, so that an order \
     that comes twice goes on once. A halted push begins anew with another number, whatever clients and guards say against it.",
    "promote edge --push 42 --step 3",
    "promote edge --push 42 --all --as jo --reason outage"
);

const ABORT_HELP: &str = help!(
    "The push begins anew when the control plane has changed it.",
    "abort edge --push 42",
    "abort edge --push 42 --condemn Cluster/payments --reason outage"
);

const BAR_HELP: &str = help!(
    "Clients of the class keep the content before until the control plane changes theirs.",
    "bar edge --push 42 --class 9a11bd07",
    "bar edge --push 42 --class 9a11bd07 --reason outage"
);

const PIN_HELP: &str = help!(
    "Without steps: for the hour when everything since then is suspect. Changes by the control plane wait. Endpoints go on. A relay that has \
     begun anew since the release does not have its content, and refuses.",
    "pin edge --to 41 --until next-push",
    "pin edge --to 41 --for 2h --reason outage"
);

const UNPIN_HELP: &str = help!("Without a pin nothing happens.", "unpin edge", "unpin edge --reason outage");

const ROLLBACK_HELP: &str = help!(
    "Without steps. It is `pin` with the release before and `--until next-push`. `sluice rollback`, without `rollout`, is for \
     the configuration of sluice itself.",
    "rollback edge --push 42",
    "rollback edge --push 42 --reason outage"
);

const FREEZE_HELP: &str = help!(
    "For all plans with `mode: enforce`. What the control plane changes meanwhile waits, and goes step by step afterwards. \
     Endpoints, Secrets and names that nobody asked for before go on, and so do all pushes where a plan observes, which is told, or where \
     there is no plan. Another freeze replaces the first.",
    "freeze --for 2h --reason sale",
    "freeze --for 1d -o json"
);

const UNFREEZE_HELP: &str = help!(
    "What waits goes to the clients step by step. Without a freeze nothing happens.",
    "unfreeze",
    "unfreeze --reason over"
);

/// An order as its request.
struct OrderWish {
    path: String,
    parameters: PlanParameters,
    /// The argument with a number that each relay counts for itself.
    numbered: Option<&'static str>,
    /// The order is to all plans.
    is_for_all: bool,
    common: OrderArguments,
}

impl OrderWish {
    fn to_plan(word: &str, plan: &str, common: OrderArguments) -> OrderWish {
        let path = Endpoint::CommandPlan.path_of(&[&encoded(plan), word]);
        OrderWish { path, parameters: PlanParameters::default(), numbered: None, is_for_all: false, common }
    }

    fn to_push(word: &str, order: OfPush) -> OrderWish {
        let OfPush { plan, push, common } = order;
        let wish = OrderWish { numbered: Some("--push"), ..OrderWish::to_plan(word, &plan, common) };
        wish.with(|parameters| parameters.push = Some(push.to_string()))
    }

    fn to_all(endpoint: Endpoint, common: OrderArguments) -> OrderWish {
        let path = endpoint.path().to_owned();
        OrderWish { path, parameters: PlanParameters::default(), numbered: None, is_for_all: true, common }
    }

    fn with(mut self, set: impl FnOnce(&mut PlanParameters)) -> OrderWish {
        set(&mut self.parameters);
        self
    }
}

impl From<RolloutOrder> for OrderWish {
    fn from(order: RolloutOrder) -> OrderWish {
        match order {
            RolloutOrder::Pause(order) => OrderWish::to_push("pause", order),
            RolloutOrder::Resume(order) => OrderWish::to_push("resume", order),
            RolloutOrder::Rollback(order) => OrderWish::to_push("rollback", order),
            RolloutOrder::Promote(Promote { order, step, all }) => {
                OrderWish::to_push("promote", order).with(|parameters| {
                    parameters.step = step.map(|step| step.to_string());
                    parameters.all = all.then(|| "1".to_owned());
                })
            }
            RolloutOrder::Abort(Abort { order, condemn }) => {
                OrderWish::to_push("abort", order).with(|parameters| {
                    parameters.condemn = (!condemn.is_empty()).then(|| condemn.join(","));
                })
            }
            RolloutOrder::Bar(Bar { order, class }) => {
                OrderWish::to_push("bar", order).with(|parameters| parameters.class = Some(class))
            }
            RolloutOrder::Pin(Pin { plan, to, until, length, common }) => {
                let wish = OrderWish { numbered: Some("--to"), ..OrderWish::to_plan("pin", &plan, common) };
                wish.with(|parameters| {
                    parameters.to = Some(to.to_string());
                    parameters.until =
                        until.and_then(|until| Some(until.to_possible_value()?.get_name().to_owned()));
                    parameters.r#for = length.map(milliseconds);
                })
            }
            RolloutOrder::Unpin(Unpin { plan, common }) => OrderWish::to_plan("unpin", &plan, common),
            RolloutOrder::Freeze(Freeze { length, common }) => OrderWish::to_all(Endpoint::Freeze, common)
                .with(|parameters| parameters.r#for = Some(milliseconds(length))),
            RolloutOrder::Unfreeze(Unfreeze { common }) => OrderWish::to_all(Endpoint::Unfreeze, common),
        }
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

fn freeze_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    if time > FREEZE_MAX {
        return Err("at most 7d".to_owned());
    }
    Ok(time)
}

fn content(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((type_name, name)) if !type_name.is_empty() && !name.is_empty() && !text.contains(',') => {
            Ok(text.to_owned())
        }
        _ => Err("expected TYPE/NAME, as Cluster/payments, without a comma".to_owned()),
    }
}

pub(super) async fn run(order: RolloutOrder, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let wish = OrderWish::from(order);
    let (by, reason) = (wish.common.by.clone(), wish.common.reason.clone());
    let here = wish.common.here.then(|| "1".to_owned());
    let wish =
        wish.with(|parameters| (parameters.here, parameters.r#as, parameters.reason) = (here, by, reason));
    let OrderWish { path: target, parameters, numbered, is_for_all, common } = wish;
    let relays = Relays::new(&common.reach).await?;
    if let Some(argument) = numbered.filter(|_| relays.are_several()) {
        let text = format!("{argument}: each relay counts pushes for itself; name one relay by --relay");
        return Err(Failure::Usage(text));
    }
    let path = path(&target, parameters.into_pairs());
    match is_for_all {
        true => give(&relays, &path, common.form, obeyed, console).await,
        false => give(&relays, &path, common.form, after, console).await,
    }
}

/// Gives the order to all relays. `line`: an answer for people.
async fn give<T: DeserializeOwned>(
    relays: &Relays,
    path: &str,
    form: AnswerForm,
    line: fn(&T) -> String,
    console: &mut Console<'_>,
) -> Result<Outcome, Failure> {
    let answers = relays.typed::<T>(&Method::POST, path).await;
    let outcome = answers.report_state(console.err)?;
    let answers: Vec<_> = answers.values().collect();
    match form {
        AnswerForm::Json => console.json(&json!({ "relays": jsons(&answers) }))?,
        AnswerForm::Table => {
            for answer in &answers {
                writeln!(console.out, "{}", safe(&format!("{}  {}", answer.relay, line(&answer.value))))?;
            }
        }
    }
    console.out.flush()?;
    Ok(outcome)
}

/// The names of the plans that obeyed an order to all.
fn obeyed(answer: &FrozenPlans) -> String {
    let plans = joined(&answer.plans);
    match answer.observing.is_empty() {
        true => format!("done in {plans}"),
        false => {
            format!("done in {plans}; NOT frozen, because of mode: observe: {}", joined(&answer.observing))
        }
    }
}

/// `edge: push 42 is paused, step 2/5 1%; paused by an operator`.
fn after(plan: &PlanState<'static>) -> String {
    let mut line = format!("{}: {}", plan.name, plan.state);
    if let Some(push) = plan.push {
        line += &format!(", push {push}");
    }
    if let Some(step) = plan_step(plan) {
        line += &format!(", step {step}");
    }
    if let Some(why) = &plan.why {
        line += &format!("; {why}");
    }
    line
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::Value;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        order: RolloutOrder,
    }

    fn request(line: &str) -> Result<String, String> {
        let words = std::iter::once("rollout").chain(line.split(' '));
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let wish = OrderWish::from(line.order);
        Ok(path(&wish.path, wish.parameters.into_pairs()))
    }

    #[test]
    fn his_5_each_order_is_one_request_that_names_its_push() {
        let requests = [
            ("pause a/b --push 4", "/rollouts/a%2Fb/pause?push=4"),
            ("resume a --push 4", "/rollouts/a/resume?push=4"),
            ("promote a --push 4", "/rollouts/a/promote?push=4"),
            ("promote a --push 4 --step 2", "/rollouts/a/promote?push=4&step=2"),
            ("promote a --push 4 --all", "/rollouts/a/promote?push=4&all=1"),
            (
                "abort a --push 4 --condemn Cluster/x --condemn Listener/y/z",
                "/rollouts/a/abort?push=4&condemn=Cluster%2Fx%2CListener%2Fy%2Fz",
            ),
            ("bar a --push 4 --class c0ffee", "/rollouts/a/bar?push=4&class=c0ffee"),
            ("pin a --to 0 --until next-push", "/rollouts/a/pin?to=0&until=next-push"),
            ("pin a --to 3 --until unpin", "/rollouts/a/pin?to=3&until=unpin"),
            ("pin a --to 3 --for 2d", "/rollouts/a/pin?to=3&for=172800000ms"),
            ("unpin a", "/rollouts/a/unpin"),
            ("rollback a --push 4", "/rollouts/a/rollback?push=4"),
            ("freeze", "/freeze?for=14400000ms"),
            ("freeze --for 7d", "/freeze?for=604800000ms"),
            ("unfreeze", "/unfreeze"),
        ];
        for (line, expected) in requests {
            assert_eq!(request(line).as_deref(), Ok(expected), "{line}");
        }
    }

    #[test]
    fn his_5_an_order_without_its_push_or_with_two_ends_is_no_order() {
        let wrong = [
            ("pause a", "--push"),
            ("promote a --push 4 --all --step 2", "cannot be used with"),
            ("abort a --push 4 --condemn payments", "TYPE/NAME"),
            ("pin a --to 3", "--until"),
            ("pin a --to 3 --until unpin --for 2h", "cannot be used with"),
            ("freeze --for 8d", "at most 7d"),
            ("freeze --for 169h", "at most 7d"),
            ("freeze --for soon", "expected a time"),
        ];
        for (line, words) in wrong {
            let error = request(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn his_5_the_answer_is_the_state_after_the_order() {
        let plan = json!({"name": "edge", "state": "paused", "push": 42, "step": 2, "steps": 5, "percent": 1.0, "why": "an operator"});
        let read = |json: Value| serde_json::from_value::<PlanState>(json).unwrap();
        assert_eq!(after(&read(plan)), "edge: paused, push 42, step 2/5 1%; an operator");
        assert_eq!(after(&read(json!({"name": "edge", "state": "open", "push": null}))), "edge: open");
        let read = |json: Value| serde_json::from_value::<FrozenPlans>(json).unwrap();
        assert_eq!(obeyed(&read(json!({"plans": ["edge", "batch"]}))), "done in edge, batch");
        let mixed = json!({"plans": ["edge"], "observing": ["batch", "idle"]});
        assert_eq!(obeyed(&read(mixed)), "done in edge; NOT frozen, because of mode: observe: batch, idle");
    }
}
