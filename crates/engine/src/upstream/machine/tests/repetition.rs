//! Servers that repeat themselves (ADR 67).

use super::script::{Script, delta, sotw};
use super::*;

/// The effects of a server that answers each answer of the relay after a millisecond.
#[derive(Debug, Default)]
struct Loop {
    responses: usize,
    /// The responses that were answered at once.
    at_once: usize,
    told: usize,
}

/// Lets the server respond for so long. `response` gives the elements of each response.
fn run_loop(script: &mut Script, millis: usize, response: impl Fn(usize) -> String) -> Loop {
    let mut seen = Loop::default();
    let mut is_asked = true;
    for _ in 0..millis {
        if std::mem::take(&mut is_asked) {
            seen.responses += 1;
            let number = seen.responses;
            let said = script.run(&format!("CDS v{number} n{number} {}", response(number)));
            is_asked = said.iter().any(|line| line.starts_with("send"));
            seen.at_once += usize::from(is_asked);
            seen.told += said.iter().filter(|line| line.starts_with("repeated CDS")).count();
        }
        is_asked |= script.run("after 1ms").iter().any(|line| line.starts_with("send"));
    }
    seen
}

fn opened(settings: UpstreamSettings, names: &str) -> Script {
    let mut script = Script::new(settings);
    script.run(&format!("+ CDS {names}"));
    script.run("opened");
    script
}

#[test]
fn ack_8_a_server_that_answers_each_answer_is_paced() {
    // Equal content under new versions; a name that occurs twice; a bad element; an error; unwanted resources; two
    // resources in turn, which are two full states in SotW.
    let contents: [fn(usize) -> String; 6] = [
        |_| "a=1".to_owned(),
        |_| "a=1 a=1".to_owned(),
        |_| "!a".to_owned(),
        |_| "a:INTERNAL".to_owned(),
        |n| format!("z{n}=1"),
        |n| if n % 2 == 0 { "a=1".to_owned() } else { "b=1".to_owned() },
    ];
    for settings in [delta(), sotw()] {
        let fitting = if settings.variant == Variant::Delta { 6 } else { 5 };
        for content in contents.iter().take(fitting) {
            let mut script = opened(settings.clone(), "a b");
            let seen = run_loop(&mut script, 4000, content);
            assert!(seen.responses > 20 && seen.responses < 60, "{seen:?}: {}", content(1));
            assert!(seen.at_once >= 19 && seen.told == seen.responses - seen.at_once, "{seen:?}");
        }
        let mut script = opened(settings.clone(), "*");
        let seen =
            run_loop(&mut script, 4000, |n| if n == 1 { "a=1 b=1" } else { "a=1 b=1 c:INTERNAL" }.to_owned());
        assert!(seen.responses < 60, "{seen:?}");
        let mut script = opened(settings, "*");
        let seen = run_loop(&mut script, 4000, |n| format!("z{n}:INTERNAL"));
        assert!(seen.responses < 60, "{seen:?}");
    }
}

/// The simulator's setting, as a control of these tests.
#[test]
fn without_the_setting_the_loop_goes_on() {
    let mut script = opened(UpstreamSettings { paces_answers: false, ..delta() }, "a b");
    let seen = run_loop(&mut script, 1000, |_| "a=1".to_owned());
    assert_eq!((seen.responses, seen.told), (1000, 0));
}

#[test]
fn ack_8_news_is_answered_at_once() {
    for settings in [delta(), sotw()] {
        let mut script = opened(settings.clone(), "*");
        let seen = run_loop(&mut script, 2000, |n| format!("a={n} b=1"));
        assert_eq!(
            (seen.responses, seen.at_once, seen.told),
            (2000, 2000, 0),
            "each response has other content"
        );
        let mut script = opened(settings, "*");
        let paced = run_loop(&mut script, 6000, |_| "a=1 b=1".to_owned());
        let said = script.run("CDS v9 n9 a=2 b=1");
        assert!(said.first().unwrap().starts_with("send CDS"), "{said:?}");
        let again = run_loop(&mut script, 10, |_| "a=1 b=1".to_owned());
        assert!(paced.at_once < 25 && again.at_once >= 8, "{paced:?} {again:?}");
    }
}

/// A full state that leaves a member out, and brings it back.
#[test]
fn sst_1_an_omission_is_news() {
    let mut script = opened(sotw(), "*");
    let seen = run_loop(&mut script, 500, |n| if n % 2 == 0 { "a=1" } else { "a=1 b=1" }.to_owned());
    assert_eq!(seen.at_once, 500);
}

/// A removal, and the return of the same content.
#[test]
fn del_12_a_removal_is_news() {
    for names in ["*", "a b"] {
        let mut script = opened(delta(), names);
        let seen = run_loop(&mut script, 500, |n| if n % 2 == 0 { "-a" } else { "a=1" }.to_owned());
        assert_eq!(seen.at_once, 500, "{names}");
        let seen = run_loop(&mut script, 5000, |_| "-a".to_owned());
        assert!(seen.responses < 60, "the same removal: {seen:?}");
    }
}

/// A server restates its resources one by one on a new stream, and waits for each ACK.
#[test]
fn del_35_restated_content_is_not_delayed() {
    let mut script = opened(delta(), "*");
    let one_by_one = |n: usize| format!("r{n}=1");
    assert_eq!(run_loop(&mut script, 3000, one_by_one).at_once, 3000);
    script.run("closed UNAVAILABLE");
    script.run("after 60s");
    script.run("opened");
    assert_eq!(run_loop(&mut script, 3000, one_by_one).at_once, 3000);
}

/// An owed answer leaves with the next change of the subscription.
#[test]
fn ack_9_a_change_takes_the_waiting_answer_along() {
    for settings in [delta(), sotw()] {
        let mut script = opened(settings, "a b");
        run_loop(&mut script, 5000, |_| "a=1".to_owned());
        script.run("after 500ms");
        assert!(script.run("CDS v8 n8 a=1")[0].starts_with("repeated CDS"));
        let said = script.run("+ CDS c");
        assert!(said[0].contains("n8") && said[0].contains('c') && said.len() == 1, "{said:?}");
        assert_eq!(script.run("after 900ms"), [""; 0], "the answer is not written twice");
    }
    let mut script = opened(delta(), "a b");
    run_loop(&mut script, 5000, |_| "!a".to_owned());
    script.run("after 500ms");
    script.run("CDS v8 n8 !a");
    assert!(script.run("+ CDS c")[0].contains("n8 +c NACK"), "a waiting NACK stays a NACK");
}

/// One answer for all responses of a wait, about the newest.
#[test]
fn ack_9_a_server_that_waits_for_no_answer_gets_few() {
    for settings in [delta(), sotw()] {
        let mut script = opened(settings, "*");
        let mut sends = Vec::new();
        for number in 0..3000 {
            let said = script.run(&format!("CDS v{number} n{number} a=1 b=1"));
            let late = script.run("after 1ms");
            sends.extend(said.into_iter().chain(late).filter(|line| line.starts_with("send")));
        }
        assert!(sends.len() < 40, "{}", sends.len());
        sends = script.run("after 500ms");
        assert!(sends[0].contains("n=n2999"), "{sends:?}");
        assert_eq!(script.run("after 60s"), [""; 0]);
        assert_eq!(script.upstream.poll_timeout(), None, "what was said is forgotten");
    }
}

#[test]
fn a_server_that_repeats_itself_each_second_is_left_alone() {
    let mut script = opened(sotw(), "*");
    for number in 0..100 {
        let said = script.run(&format!("CDS v{number} n{number} a=1"));
        assert!(said[0].starts_with("send CDS"), "{said:?}");
        script.run("after 1s");
    }
}

#[test]
fn heartbeats_are_paced_without_a_word() {
    let mut script = opened(sotw(), "*");
    script.run("CDS v1 n0 a=1");
    let seen = run_loop(&mut script, 5000, |_| "~a=1".to_owned());
    assert!(seen.responses < 50 && seen.told == 0, "{seen:?}");
}

/// Nothing is wanted of the type any more, and the server goes on.
#[test]
fn rly_61_late_responses_are_paced_too() {
    let mut script = opened(delta(), "a");
    script.run("+ EDS e");
    script.run("- CDS a");
    script.run("after 100ms");
    let seen = run_loop(&mut script, 5000, |_| "a=1".to_owned());
    assert!(seen.responses < 50, "{seen:?}");
}
