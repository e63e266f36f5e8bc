//! The simulator: seeded schedules drive the real machines of the relay, without sockets and without
//! sleeping, and a judge checks the invariants after every step. See `README.md` in this folder.
//!
//! By default it is a test: it runs the seeds of the corpus, then the same schedules each day, and last some
//! schedules that only this day has, whose violations are told and fail nothing. `--seeds N` runs N seeds, from
//! `--first N` on, over `--threads N`, without the open ones; with `--all` it lists the failing seeds, the open
//! ones too, and fails if they are more than `--at-most N`, and prints one hash for the events of all schedules; with
//! `--brief` it prints only the first failure, not shrunk. `--story SEED` prints the events of one seed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]
// Names and types are numbers here, and every table is indexed by them.
#![allow(clippy::needless_range_loop)]
// The runner measures the speed of schedules; in schedules time is a number.
#![allow(clippy::disallowed_methods)]

mod calm;
mod checkpoint;
mod client;
mod clock;
mod collections;
mod confirming;
mod control_plane;
mod failing;
mod current;
mod faults;
mod firsts;
mod flight;
mod guarded;
mod hearing;
mod held;
mod judge;
mod lists;
mod loads;
mod message;
mod places;
mod polls;
mod reference;
mod relay;
mod removals;
mod rest;
mod restored;
mod reloads;
mod returns;
mod rng;
mod routes;
mod run;
mod schedule;
mod scheduler;
mod shadows;
mod track;
mod upstream;
mod waves;
mod words;
mod world;

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use run::{Batch, run_batch, tell};
use schedule::{
    EVENTS_MIN, GROWN, GROWN_AGAIN, GROWN_ANEW, GROWN_FALLBACK, GROWN_HOOKS, GROWN_LISTS, GROWN_PAUSES,
    GROWN_RELOADS, GROWN_SIBLINGS, GROWN_WIRES, Plan, REPLACED, WAVES,
};

/// The first schedule of the tests. The schedules that only this day has begin so many after the first of the day.
const BASE: u64 = 89_249_420_410_880;
const SURVEYED: u64 = 40_000;

/// The schedules of aggregated streams, and those of other wires. The long run has 1,000,000 of all kinds.
const SEEDS: u64 = 600;

/// The duration of the schedules that only this day has.
const WITHIN_OF_TODAY: Duration = Duration::from_secs(5);

/// The schedules with reloads before the first open one.
const RELOADS: u64 = 300;

/// The schedules in which servers pause between the messages of an answer.
const PAUSES: u64 = 300;

/// The schedules with reloads of server lists before the first open one.
const LISTS: u64 = 300;

/// The schedules with rollouts.
const ROLLOUTS: u64 = 300;

/// The schedules that are run with an idle plan, and without a plan.
const IDLE_RUN: u64 = 50;

/// The schedules of collections.
const COLLECTIONS_RUN: u64 = 300;

/// The schedules of shadows, and those of load reports.
const APART_RUN: u64 = 600;

/// The schedules of splits before the first open one.
const SPLITS_RUN: u64 = 400;

/// The first seeds of all kinds of worlds, and the percentage of each in a mixed count.
const MIXED: [(u64, u64); 10] = [
    (GROWN_WIRES, 40),
    (GROWN_RELOADS, 4),
    (GROWN_PAUSES, 3),
    (GROWN_LISTS, 3),
    (WAVES, 5),
    (GROWN_HOOKS, 7),
    (GROWN_FALLBACK, 8),
    (REPLACED.start, 10),
    (GROWN_SIBLINGS, 10),
    (GROWN_ANEW.start, 10),
];

/// Seeds that violated an invariant once, before a fix of the machines or the judge. README.md tells most of
/// the stories.
const CORPUS: &[u64] = &[
    0,
    3,
    14,
    36,
    209,
    495,
    1222,
    10146,
    29454,
    41469,
    67570,
    85990,
    93530,
    98336,
    103367,
    175337,
    186182,
    245132,
    287666,
    340683,
    342233,
    350764,
    366444,
    372324,
    420474,
    502190,
    614312,
    654806,
    734304,
    839782,
    880669,
    934925,
    1150809,
    1171514,
    1203426,
    2098819,
    2162114,
    2314062,
    2462728,
    2557400,
    89240900002797,
    89245125478949,
    89245125479611,
    89249420415784,
    89249420419001,
    89249420431766,
    89249420441535,
    140737488355330,
    140737488362290,
    140737488375455,
    140737488519849,
    140737488638020,
    140737488770248,
    140737488791048,
    140737488806456,
    140737488856534,
    140737488856760,
    140737488875721,
    140737488877040,
    140737488881628,
    140737488893204,
    140737488910394,
    140737488913484,
    140737488914116,
    140737488968197,
    140737489063203,
    140737489199310,
    140737489287198,
    281474976711030,
    281474976757149,
    281474976725505,
    281474976835027,
    281474976943980,
    562949953421449,
    562949953421952,
    562949953422296,
    562949953422900,
    562949953423437,
    562949953424027,
    562949953424256,
    562949953424420,
    562949953428528,
    562949953429098,
    562949953431726,
    562949953439214,
    562949953440594,
    562949953448431,
    562949953468442,
    562949953472208,
    562949953476324,
    562949953526937,
    562949953634879,
    562949953651532,
    1125899906842628,
    1125899906842666,
    1125899906842675,
    1125899906843064,
    1125899906843132,
    1125899906843542,
    1125899906843962,
    1125899906844932,
    1125899906845932,
    1125899906846662,
    1125899906847852,
    1125899906848214,
    1125899906850307,
    1125899906850343,
    1125899906851910,
    1125899906852707,
    1125899906860244,
    1125899906864265,
    1125899906864730,
    1125899906864898,
    1125899906867304,
    1125899906874529,
    1125899906888002,
    1125899906894422,
    1125899907254473,
    1125899907351822,
    1125899907389726,
    1125899907454075,
    1125899907455901,
    1125899907632083,
    1125899907891262,
    1125899907891402,
    1125899907891509,
    1125899907891969,
    1125899907892132,
    1125899907892187,
    1125899907893975,
    1125899907895173,
    1125899907895517,
    2251799813685248,
    2251799813685284,
    2251799813685292,
    2251799813686107,
    2251799813688046,
    2251799813688339,
    2251799813688664,
    2251799813689577,
    2251799813690277,
    2251799813690873,
    2251799813694282,
    2251799813699016,
    2251799813703543,
    2251799813704948,
    2251799813712665,
    2251799813746018,
    2251799813751058,
    2251799813770142,
    2251799813838151,
    2251799813865556,
    2251799813869641,
    2251799813895744,
    2251799813939416,
    2251799813985245,
    2251799814734370,
    2251799814739264,
    2251799814745342,
    2251799814753736,
    2251799814772134,
    2251799814814575,
    2251799814815357,
    2251799814825331,
    2251799814829213,
    2251799814885304,
    2251799814895545,
    2251799814973588,
    2251799814986025,
    2251799815847790,
    2251799815882686,
    2251799815887652,
    2251799815896460,
    2251799815898806,
    2251799815902402,
    2251799815910988,
    2251799815914116,
    2251799815917633,
    2251799815919250,
    2251799815923400,
    2251799815926547,
    2251799815949649,
    2251799815954506,
    2251799815954754,
    2251799815975219,
    2251799815978694,
    2251799815985719,
    2251799815992884,
    2251799816019236,
    2251799816021620,
    2251799816028550,
    2251799816052921,
    2251799816207724,
    2251799816208726,
    2251799816488148,
    2251799815193539,
    2251799815196001,
    2251799815788682,
    1125899907893117,
    1125899906904559,
    1125899906942053,
    1125899907000000,
    1125899907113649,
    1125899907460800,
    1125899907492602,
    1125899907536731,
    1125899907592789,
    1125899907648384,
    1125899907655706,
    1125899907909937,
    1125899911002349,
    1125899913013079,
    1125899913021462,
    1125899913027200,
    1125899912052510,
    1125899912033349,
    1125899913104892,
    1125899913106043,
    1125899913268657,
    1125899913090114,
    1125899912029858,
    1125899912268521,
    1125899912310132,
    1125899914010556,
    1125899914179960,
    1125899914598641,
    1125899914768471,
    1125899914817794,
    1125899914193606,
    1125899915102552,
    1125899914469998,
    1125899914539708,
    1125899915128402,
    1125899915130811,
    1125899915358066,
    1125899915565269,
    1125899914603914,
    1125899915158613,
    1125899915561225,
    1125899915100357,
    1125899916008339,
    1125899916071989,
    1125899916046717,
    1125899919103093,
    1125899919133959,
    1125899922066984,
    1125899922080816,
    1125899925347506,
    1125899927121015,
    1125899927213340,
    1125899928190012,
    1125899930021888,
    1125899930070292,
    1125899930096171,
    1125899931090071,
    1125899931097752,
    1125899932134268,
    1125899933007430,
    1125899933024564,
    1125899933086206,
    1125899940402165,
    1125899940403309,
    1125899940404680,
    1125899940409794,
    1125899941000641,
    1125899941016012,
    1125899941019411,
    1125899941020218,
    1125899941022668,
    1125899941023078,
    1125899941027085,
    1125899942000428,
    1125899942000688,
    1125899942006953,
    1125899942009537,
    1125899942012384,
    1125899942016845,
    1125899943035020,
    1125899943041988,
    1125899943053877,
    1125899943065447,
    1125899944000127,
    1125899944000474,
    1125899944031461,
    1125899944056198,
    1125899945026142,
    1125899950127083,
    1125899950153436,
    1125899951034664,
    1125899951162037,
    1125899951181002,
    1125899953112034,
    1125899953131339,
    1125899953511719,
    1125899953624754,
    1125899954606956,
    1125899955009090,
    1125899956000195,
    1125899962007715,
    1125899963011527,
    1125899964099211,
    1125899966152679,
    1125899968229244,
    1125899968346058,
    1125899968486607,
    1125899969352487,
    89249420413819,
    // An error behind rejected listeners is no cure.
    20000001896,
    // The last message of an older answer makes newer content due.
    140737488364570,
    140737488439697,
    140737488455430,
    140737488550277,
    // Clusters before the routing types begin no wait.
    140737488394448,
    140737488404098,
    140737488535404,
    140737488537461,
    // Routes wait for names beside a wildcard in doubt.
    140737488399032,
    140737488467354,
    140737488559882,
    // The end of a round, as the judge sees it.
    140737488414422,
    // What was given again, or taken back, of a unit that slept meanwhile.
    1125899912891654,
    1125901480585520,
    1125899907246995,
    1125899912897569,
    1125899907253524,
    1125900980584711,
    // Clients that die of the last part of a push, or lose streams whatever they are served.
    1125900041060699,
    1125900091064484,
    1125900091065815,
    1125900003960873,
    // A client lost streams before any push, a hook waits for a step that bakes anew, and a displaced unit forgets who rejected what.
    1125900091071094,
    1125900980586665,
    1125901480588482,
    // An operator begins the next step, which lacks clients from then on.
    1125899976952487,
    // A round from before a returning client's set was whole, and a route that was given up unanswered.
    282574498339728,
    140737498372005,
    // Content that was rejected after each restatement, and a return to a release that a deserted unit forgot.
    1125900013960101,
    1125899927896127,
    // A client that gives up a name of the push and dies, and a step that bakes anew by what only clients know.
    1125900541083724,
    1125901480609669,
    // Last bytes of a former class, after a move from a server that said nothing.
    281474986727925,
    // A name that a client gave up, and that its wildcard lacks; a client that drops the wildcard and comes back to it; a client
    // that dies between the last tally and the end of the push; a rejected heartbeat before the silence about another name.
    1125899960438825,
    140737498593594,
    1125899927937196,
    140737498625421,
    // A push whose content was halted before goes by steps, and is no return.
    1125900014019914,
    // A return to a release that was stable at the begin of a later push, too.
    1125899907481936,
    // The second server has the content of a push itself, and the first one does not stand in.
    1125900541143542,
    // A client that may have a cluster of a halted push comes back from the second server, which has the cluster.
    1125901480670426,
    1125900541147748,
    // A unit begins anew after a restart with other content than its latest release has, and a release of other units is rolled back to.
    1125899907452218,
    // A SotW client asks again for a name before it reads a response with the name, and the set waits for the name.
    140737498430792,
    // A unit without clients forgets a name, and has another content of it at its next push.
    1125900541061962,
    // A push settles the content of a halted one with more names, and later pushes return to it twice.
    1125899960445118,
    // A name of a halted push is withdrawn after its last client has gone, and the relay forgets the name at once.
    1125901480674744,
    // A stream that gave the wildcard up, to another server, stays silent.
    562949963447946,
];

/// Seeds that violate an invariant, from the machines' fault or the judge's; README.md tells what is known.
/// Batches leave them out, so that a run fails only by a violation that is new.
const OPEN: &[u64] = shadows::OPEN;

/// The number of seeds of one day: more than a day's runs reach.
const SEEDS_OF_A_DAY: u64 = 1 << 32;

/// A named test and its result.
type Test = (&'static str, fn() -> Result<String, String>);

const TESTS: &[Test] = &[
    ("the_same_seed_gives_the_same_events", the_same_seed_gives_the_same_events),
    ("i18_the_clock_does_not_matter", i18_the_clock_does_not_matter),
    ("a_schedule_has_at_least_200_events", a_schedule_has_at_least_200_events),
    ("no_seed_of_the_corpus_violates_an_invariant", no_seed_of_the_corpus_violates_an_invariant),
    ("open_schedules_are_told", open_schedules_are_told),
    ("no_schedule_violates_an_invariant", no_schedule_violates_an_invariant),
    ("new_violations_of_today_are_told", new_violations_of_today_are_told),
    ("no_schedule_of_other_wires_violates_an_invariant", no_schedule_of_other_wires_violates_an_invariant),
    ("no_schedule_with_reloads_violates_an_invariant", no_schedule_with_reloads_violates_an_invariant),
    ("no_schedule_with_pauses_violates_an_invariant", no_schedule_with_pauses_violates_an_invariant),
    ("no_schedule_of_collections_violates_an_invariant", no_schedule_of_collections_violates_an_invariant),
    ("no_schedule_of_shadows_or_loads_violates_one", no_schedule_of_shadows_or_loads_violates_one),
    (
        "no_schedule_with_other_lists_violates_an_invariant",
        no_schedule_with_other_lists_violates_an_invariant,
    ),
    ("no_schedule_with_rollouts_violates_an_invariant", no_schedule_with_rollouts_violates_an_invariant),
    ("i33_an_idle_plan_changes_no_response", i33_an_idle_plan_changes_no_response),
    ("i33_without_a_plan_all_events_are_as_recorded", i33_without_a_plan_all_events_are_as_recorded),
];

fn main() -> ExitCode {
    // Panics of the engine are findings, and reported as such.
    std::panic::set_hook(Box::new(|_| {}));
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1)?.parse::<u64>().ok()
    };
    if args.iter().any(|arg| arg == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    if let Some(seed) = value("--story") {
        return story(seed);
    }
    let threads = value("--threads").map_or_else(cores, |threads| threads as usize);
    let at_most = value("--at-most").unwrap_or(0);
    if let Some(count) = value("--mixed") {
        return list(&mixed(count, value("--from").unwrap_or(0), threads), at_most);
    }
    if let Some(count) = value("--seeds") {
        let first = value("--first").unwrap_or(GROWN_WIRES);
        let is_brief = args.iter().any(|arg| arg == "--brief");
        let batch = Batch { first, count, within: None, threads, shows_progress: !is_brief };
        if is_brief {
            return list(run_batch(&batch).found.as_slice(), 0);
        }
        if args.iter().any(|arg| arg == "--all") {
            let survey = run::survey(&batch);
            println!("{count} schedules; the hash of all events is {:016x}", survey.hash);
            return list(&survey.found, at_most);
        }
        return verdict(&[("seeds", run_seeds(batch))]);
    }
    let filter = args.iter().find(|arg| !arg.starts_with('-'));
    let chosen = TESTS.iter().filter(|(name, _)| filter.is_none_or(|filter| name.contains(filter.as_str())));
    let results: Vec<_> = chosen.map(|(name, test)| (*name, test())).collect();
    verdict(&results)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Prints the results as cargo's own harness does, so that they are counted with the others.
fn verdict(results: &[(&str, Result<String, String>)]) -> ExitCode {
    for (name, result) in results {
        match result {
            Ok(text) => println!("test {name} ... ok {text}"),
            Err(text) => println!("test {name} ... FAILED\n{text}"),
        }
    }
    let failed = results.iter().filter(|(_, result)| result.is_err()).count();
    let (passed, word) = (results.len() - failed, if failed == 0 { "ok" } else { "FAILED" });
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out\n"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn story(seed: u64) -> ExitCode {
    let outcome = run::run(seed, &run::acts_of(seed), run::origin_of(seed), true);
    println!("{}\n{}", run::plan_of(seed), outcome.story.join("\n"));
    if outcome.failure.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs schedules of all kinds of worlds, the ones after the first `from` of such a mixture. Returns all violations.
fn mixed(count: u64, from: u64, threads: usize) -> Vec<run::Found> {
    let part = |of: u64, percent| of * percent / 100;
    let batches = MIXED.iter().map(|(first, percent)| Batch {
        first: first + part(from, percent),
        count: part(count, percent),
        within: None,
        threads,
        shows_progress: true,
    });
    batches.flat_map(|batch| run::survey(&batch).found).collect()
}

/// Prints all failing seeds, by invariant. `most`: so many may fail.
fn list(all: &[run::Found], most: u64) -> ExitCode {
    for found in all {
        println!("{} seed {}: {}", found.failure.invariant.id(), found.seed, found.failure.text);
    }
    println!("{} seeds fail", all.len());
    if all.len() as u64 <= most { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs so many seeds from the first on.
fn run_from(first: u64, count: u64) -> Result<String, String> {
    run_seeds(Batch { first, count, within: None, threads: cores(), shows_progress: false })
}

fn run_seeds(batch: Batch) -> Result<String, String> {
    let report = run_batch(&batch);
    let text = format!("({} schedules, {:.0} a second)", report.seeds, report.rate());
    match &report.found {
        None => Ok(text),
        Some(found) => Err(format!("{text}\n{}", tell(found))),
    }
}

fn the_same_seed_gives_the_same_events() -> Result<String, String> {
    let apart = [collections::COLLECTIONS, shadows::SHADOWS, shadows::TWOFOLD, shadows::SPLITS, loads::LOADS];
    let others = apart.map(|first| first..first + 20);
    for seed in (0..20).chain(others.into_iter().flatten()) {
        let (one, other) = (run::run_seed(seed).hash, run::run_seed(seed).hash);
        if one != other {
            return Err(format!("seed {seed}: {one:x} and {other:x}"));
        }
    }
    let hashes: std::collections::BTreeSet<u64> = (0..20).map(|seed| run::run_seed(seed).hash).collect();
    if hashes.len() == 20 {
        Ok(String::new())
    } else {
        Err("different seeds give the same events".to_owned())
    }
}

fn i18_the_clock_does_not_matter() -> Result<String, String> {
    for seed in (0..40).chain(loads::LOADS..loads::LOADS + 20) {
        let acts = run::acts_of(seed);
        let hash = |origin: u64| run::run(seed, &acts, origin, false).hash;
        let (one, other) = (hash(0), hash(1 << 50));
        if one != other {
            return Err(format!("seed {seed}: {one:x} and {other:x}"));
        }
    }
    Ok(String::new())
}

fn a_schedule_has_at_least_200_events() -> Result<String, String> {
    let fewest = (0..200).map(|seed| Plan::of_seed(seed).acts().len()).min().unwrap_or_default();
    if fewest >= EVENTS_MIN { Ok(String::new()) } else { Err(format!("one has {fewest}")) }
}

fn no_seed_of_the_corpus_violates_an_invariant() -> Result<String, String> {
    let seeds = [CORPUS, shadows::MENDED].concat();
    match run::first_failing(&seeds, cores()) {
        None => Ok(format!("({} schedules)", seeds.len())),
        Some(found) => Err(tell(&found)),
    }
}

/// A message only. A seed that violates nothing any more belongs in the corpus.
fn open_schedules_are_told() -> Result<String, String> {
    let (open, closed): (Vec<u64>, Vec<u64>) =
        OPEN.iter().partition(|seed| run::run_seed(**seed).failure.is_some());
    let closed = if closed.is_empty() { String::new() } else { format!("; violate nothing now: {closed:?}") };
    Ok(format!("({} schedules are open{closed})", open.len()))
}

/// The same schedules each day, so that the result does not depend on the day.
fn no_schedule_violates_an_invariant() -> Result<String, String> {
    run_from(BASE, SEEDS)
}

/// Schedules that no earlier day has run. A violation is a message, with the seed that repeats it: most
/// likely it is as old as the open ones.
fn new_violations_of_today_are_told() -> Result<String, String> {
    let (first, count, within) = (base_of_today(), SEEDS_OF_A_DAY, Some(WITHIN_OF_TODAY));
    let report = run_batch(&Batch { first, count, within, threads: cores(), shows_progress: false });
    let text = format!("(base {first}: {} schedules)", report.seeds);
    Ok(match report.found {
        None => text,
        Some(run::Found { seed, failure }) => {
            format!("{text}\nNEW: seed {seed} violates {}: {}", failure.invariant.id(), failure.text)
        }
    })
}

/// The same schedules each day, as long as some of these worlds are open (README.md).
fn no_schedule_of_other_wires_violates_an_invariant() -> Result<String, String> {
    run_from(GROWN_WIRES, SEEDS)
}

/// The first schedules with reloads, up to one that is open (README.md).
fn no_schedule_with_reloads_violates_an_invariant() -> Result<String, String> {
    run_from(GROWN_RELOADS, RELOADS)
}

/// As before, with servers that pause between the messages of an answer.
fn no_schedule_with_pauses_violates_an_invariant() -> Result<String, String> {
    run_from(GROWN_PAUSES, PAUSES)
}

/// As before, with reloads of server lists.
fn no_schedule_with_other_lists_violates_an_invariant() -> Result<String, String> {
    run_from(GROWN_LISTS, LISTS)
}

/// The first schedules with a plan of rollouts, with a hook of the plan, with lists of two servers, and with clients that are replaced.
fn no_schedule_with_rollouts_violates_an_invariant() -> Result<String, String> {
    let batch = |first| run_from(first, ROLLOUTS);
    let former = batch(WAVES)?;
    let hooks = batch(GROWN_HOOKS)?;
    let lists = batch(GROWN_FALLBACK)?;
    let replaced = batch(REPLACED.start)?;
    let siblings = batch(GROWN_SIBLINGS)?;
    let anew = batch(GROWN_ANEW.start)?;
    Ok(format!(
        "{former}, {hooks}, with a hook, {lists}, with two servers, {replaced}, with other clients, {siblings}, that look at each other, and {anew}, with sources that begin anew"
    ))
}

/// The bytes, the order and the times of all responses are the same with an idle plan and without a plan.
fn i33_an_idle_plan_changes_no_response() -> Result<String, String> {
    let mut count = 0;
    for seed in [WAVES, GROWN_FALLBACK].into_iter().flat_map(|first| first..first + IDLE_RUN) {
        let acts = run::acts_of(seed);
        for idle in [waves::Idle::GatesNothing, waves::Idle::NothingChanges] {
            let compared = waves::compare_idle(seed, &acts, idle);
            count += compared.map_err(|text| format!("seed {seed}, {text}"))?;
        }
    }
    Ok(format!("({count} responses)"))
}

/// The hashes of all events of the first schedules of each kind of world without a plan. A change of the machines that changes no event
/// without a plan, as one of rollouts has to, leaves them as they are. After a change that is meant to, `--first FIRST --seeds 100 --all`
/// prints the new hash.
const WITHOUT_A_PLAN: [(u64, u64); 6] = [
    (0, 0xacaf_370c_8454_7b65),
    (GROWN, 0xfb47_c71f_ad6f_c188),
    (GROWN_AGAIN, 0xa3a8_ce0a_2282_f3c4),
    (GROWN_WIRES, 0xd640_6e42_8016_2b3a),
    (GROWN_RELOADS, 0xc32c_5ddf_c1fd_ad83),
    (GROWN_LISTS, 0x1c22_be7a_b64c_fe05),
];

fn i33_without_a_plan_all_events_are_as_recorded() -> Result<String, String> {
    let (count, mut others) = (100, String::new());
    for (first, recorded) in WITHOUT_A_PLAN {
        let batch = Batch { first, count, within: None, threads: cores(), shows_progress: false };
        let hash = run::survey(&batch).hash;
        if hash != recorded {
            let text =
                format!("{count} schedules from {first}: {hash:#018x}, and recorded is {recorded:#018x}\n");
            others.push_str(&text);
        }
    }
    if !others.is_empty() {
        return Err(others);
    }
    Ok(format!("({} kinds of worlds, {count} schedules each)", WITHOUT_A_PLAN.len()))
}

/// Worlds with globs, aliases and suspects.
fn no_schedule_of_collections_violates_an_invariant() -> Result<String, String> {
    let batch = |first| run_from(first, COLLECTIONS_RUN);
    let former = batch(collections::COLLECTIONS)?;
    let later = batch(collections::GROWN_COLLECTIONS)?;
    Ok(format!("{former}, {later} and {}", batch(collections::GROWN_SERVERS)?))
}

/// Worlds with a control plane that is a function of the node, and worlds with a ledger of all requests (I29).
fn no_schedule_of_shadows_or_loads_violates_one() -> Result<String, String> {
    let [shadows, twofold] = [shadows::SHADOWS, shadows::TWOFOLD].map(|first| run_from(first, APART_RUN / 2));
    let (splits, loads) = (run_from(shadows::SPLITS, SPLITS_RUN)?, run_from(loads::LOADS, APART_RUN)?);
    Ok(format!("{}, {}, {splits} and {loads}", shadows?, twofold?))
}

fn base_of_today() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() / 86_400 * SEEDS_OF_A_DAY + SURVEYED
}
