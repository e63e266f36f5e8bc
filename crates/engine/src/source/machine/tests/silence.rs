//! A server that answers only requests whose names all exist (ADR 54).

use super::silence_server::{Rule, Server};
use super::*;

/// A server with `resources`, and a session that has `x`.
fn served(rule: Rule, resources: &str) -> Server {
    let mut server = Server::new(rule, resources);
    server.watch(1, "x");
    assert_eq!(server.view("x"), "x=1");
    server
}

impl Server {
    /// The session of `x` gets each update at once.
    fn assert_updates(&mut self, from: u64) {
        for content in from..from + 3 {
            self.set("x", content);
            assert_eq!(self.view("x"), format!("x={content}"), "{:?}", self.asked);
            self.run(1);
        }
    }

    fn trials(&self) -> usize {
        // One stream for all types.
        self.opened - 1
    }
}

#[test]
fn rly_1_a_name_that_silences_a_server_is_asked_for_alone_and_the_others_go_on() {
    let mut server = served(Rule::All, "x b1 b2 b3");
    server.watch(2, "b1 b2 b3 gone");
    server.run(1);
    server.set("x", 2);
    assert_eq!(server.view("x"), "x=1", "the server is silent");
    server.run(13);
    assert_eq!(server.view("x"), "x=2");
    server.run(2);
    assert_eq!(server.shared(), "b1 b2 b3 x");
    assert_eq!(server.events, ["silenced by b1 b2 b3 gone"]);
    assert_eq!(server.view("b1 b2 b3 gone"), "b1=1 b2=1 b3=1 -gone");
    server.assert_updates(3);
    server.run(10);
    assert_eq!(server.events[1..], ["silent about gone"]);
    let Attachment::Streams(streams) = server.bench.source.attachment() else { panic!("files") };
    let (_, names) = streams.silent_names(&url(EDS)).unwrap();
    assert_eq!(names, [&ResourceName::new("gone")]);
    assert!(server.most <= 9, "{}", server.most);
    server.run(600);
    server.assert_updates(10);
    assert!(server.trials() < 30, "asked for ever less often: {}", server.trials());
    // The name exists: all names are in one request again.
    server.set("gone", 1);
    server.run(63);
    assert_eq!(server.view("b1 b2 b3 gone"), "b1=1 b2=1 b3=1 gone=1");
    assert_eq!(server.shared(), "b1 b2 b3 gone x");
    assert_eq!(server.events[2..], ["speaks of gone"]);
    server.assert_updates(20);
    server.set("gone", 2);
    assert_eq!(server.view("b1 b2 b3 gone"), "b1=1 b2=1 b3=1 gone=2");
}

#[test]
fn later_names_are_tried_before_they_join_the_others() {
    let mut server = served(Rule::All, "x y z");
    server.watch(2, "gone");
    server.run(40);
    assert_eq!(server.shared(), "x");
    server.watch(3, "y gone2");
    server.assert_updates(2);
    server.run(5);
    assert_eq!((server.view("y gone2"), server.shared()), ("y=1 ?1".to_owned(), "x y"));
    server.watch(4, "z");
    assert_eq!((server.view("z"), server.shared()), ("z=1".to_owned(), "x y z"), "at once");
    server.run(15);
    assert_eq!(server.view("y gone2"), "y=1 -gone2");
    // No request on the stream of all types had a name that does not exist, since the first was found.
    let shared = server.asked.iter().filter(|(stream, _)| *stream == 0);
    assert_eq!(shared.filter(|(_, names)| names.contains("gone2")).count(), 0);
}

/// The withdrawal of a resource silences the server, too, and no request was the reason.
#[test]
fn a_resource_that_the_server_withdrew_is_found_when_a_name_is_added() {
    let mut server = served(Rule::All, "x y z");
    server.watch(2, "y gone");
    server.run(40);
    assert_eq!(server.shared(), "x y");
    server.set("y", 0);
    server.watch(3, "z");
    assert_eq!(server.view("z"), "z=1");
    server.run(1);
    server.set("x", 2);
    assert_eq!(server.view("x"), "x=1", "the server is silent");
    server.run(12);
    assert_eq!((server.view("x"), server.shared()), ("x=2".to_owned(), "x z"));
    server.assert_updates(3);
    server.run(10);
    assert_eq!((server.view("y gone"), server.view("z")), ("-y -gone".to_owned(), "z=1".to_owned()));
    let silenced = server.events.iter().filter(|event| event.starts_with("silenced")).count();
    server.run(300);
    assert_eq!(server.events.iter().filter(|event| event.starts_with("silenced")).count(), silenced);
    server.set("y", 5);
    server.run(63);
    assert_eq!((server.view("y gone"), server.shared()), ("y=5 -gone".to_owned(), "x y z"));
}

#[test]
fn one_name_among_many_is_found_in_few_steps() {
    let many: Vec<_> = (0..200).map(|n| format!("b{n}")).collect();
    let many = many.join(" ");
    let mut server = served(Rule::All, &format!("x {many}"));
    server.watch(2, &format!("{many} gone"));
    server.run(31);
    assert!(server.view(&format!("{many} gone")).ends_with("-gone"));
    assert_eq!(server.shared().split(' ').count(), 201);
    let steps = 2 + 2 * 8;
    assert!(server.trials() <= steps, "{}", server.trials());
}

#[test]
fn many_names_that_do_not_exist_have_a_bounded_number_of_streams() {
    let mut server = served(Rule::All, "x y");
    let gone: Vec<_> = (0..40).map(|n| format!("gone{n:02}")).collect();
    server.watch(2, &gone.join(" "));
    server.run(300);
    assert!(server.most <= 9, "{}", server.most);
    assert_eq!(server.shared(), "x");
    // They do not delay what exists.
    server.watch(3, "y");
    assert_eq!((server.view("y"), server.shared()), ("y=1".to_owned(), "x y"));
    server.assert_updates(2);
    let told = server.events.iter().filter(|event| event.starts_with("silent about")).count();
    assert_eq!(told, 40);
    server.set("gone17", 1);
    server.run(90);
    assert_eq!(server.view("y"), "y=1");
    assert_eq!(server.shared(), "gone17 x y");
}

/// Most servers tell what exists, and say nothing of the rest.
#[test]
fn a_server_that_is_silent_about_names_alone_is_asked_once_and_nothing_changes() {
    let mut server = served(Rule::Any, "x");
    server.watch(2, "gone");
    server.run(11);
    assert_eq!((server.trials(), server.view("gone")), (1, "-gone".to_owned()));
    assert_eq!((server.shared(), server.events.len()), ("gone x", 0));
    server.watch(3, "gone2");
    server.run(30);
    assert_eq!((server.trials(), server.view("gone2")), (1, "-gone2".to_owned()), "known for a while");
    server.assert_updates(2);
    server.set("gone", 1);
    assert_eq!(server.view("gone"), "gone=1", "at once");
    assert!(server.asked.iter().rev().all(|(_, names)| names.contains('x')));
}

#[test]
fn a_server_that_answers_all_names_or_none_keeps_its_request() {
    let mut server = served(Rule::Covering, "x");
    server.set("y", 1);
    server.watch(2, "z");
    server.run(20);
    assert_eq!(server.shared(), "x z", "a request with less would be no better");
    assert_eq!(server.events, ["silent altogether, and asked for z"]);
    // Two questions, and no further ones for a minute.
    assert_eq!(server.trials(), 2);
    server.watch(3, "y");
    assert_eq!((server.view("y"), server.view("x")), ("y=1".to_owned(), "x=1".to_owned()));
    server.assert_updates(2);
}

/// Nothing was answered before: all clients asked at once, or the relay has just begun.
#[test]
fn rly_1_a_name_that_is_there_from_the_beginning_is_found() {
    let mut server = Server::new(Rule::All, "x y");
    server.watch(1, "gone x y");
    assert_eq!(server.view("gone x y"), "?3");
    server.run(20);
    assert_eq!((server.view("gone x y"), server.shared()), ("x=1 y=1 ?1".to_owned(), "x y"));
    server.watch(2, "x");
    server.assert_updates(2);
    server.run(10);
    assert_eq!(server.view("gone x y"), "x=4 y=1 -gone");
}

/// The server knows nothing for a while after its start.
#[test]
fn rly_1_a_name_that_is_there_before_the_server_is_ready_is_found() {
    let mut server = Server::new(Rule::All, "x y");
    server.cut();
    server.is_paused = true;
    server.watch(1, "gone x y");
    server.run(30);
    assert!(server.trials() <= 2, "nothing is asked: {}", server.trials());
    server.is_paused = false;
    server.answer_clusters();
    server.run(20);
    assert_eq!((server.view("gone x y"), server.shared()), ("x=1 y=1 -gone".to_owned(), "x y"));
}

#[test]
fn a_type_that_the_server_never_answers_costs_few_streams() {
    let mut server = Server::new(Rule::All, "");
    let gone: Vec<_> = (0..100).map(|n| format!("gone{n}")).collect();
    server.watch(1, &gone.join(" "));
    server.run(60);
    assert!((2..=14).contains(&server.trials()), "{}", server.trials());
    assert_eq!(server.view(&gone.join(" ")), "?100", "nothing is known");
    assert!(server.events.is_empty());
    server.run(3600);
    assert!(server.trials() <= 14 * 7, "{}", server.trials());
}

#[test]
fn after_a_reconnect_the_names_stay_apart() {
    let mut server = served(Rule::All, "x b");
    server.watch(2, "b gone");
    server.run(30);
    server.cut();
    server.set("x", 7);
    server.asked.clear();
    server.run(3);
    assert_eq!((server.view("x"), server.shared()), ("x=7".to_owned(), "b x"));
    server.set("gone", 1);
    server.run(61);
    assert_eq!((server.view("b gone"), server.shared()), ("b=1 gone=1".to_owned(), "b gone x"));
}

/// The relay was told nothing before the stream broke.
#[test]
fn rly_1_a_name_that_silences_a_new_stream_is_found() {
    let mut server = served(Rule::All, "x");
    server.watch(2, "gone");
    server.cut();
    server.set("x", 2);
    server.run(16);
    assert_eq!((server.view("x"), server.shared()), ("x=2".to_owned(), "x"));
    server.assert_updates(3);
}

/// A pause of the server is no answer about a name (RLY-2).
#[test]
fn rly_2_silence_counts_only_while_the_server_shows_life() {
    let mut server = served(Rule::All, "x b1 b2");
    server.watch(2, "gone");
    server.run(30);
    server.is_paused = true;
    server.watch(3, "b1 b2");
    server.run(100);
    assert_eq!((server.view("b1 b2"), server.view("x")), ("?2".to_owned(), "x=1".to_owned()));
    assert!(!server.events.contains(&"silent about b1".to_owned()));
}

#[test]
fn rly_61_names_that_nobody_wants_leave_no_stream() {
    let mut server = served(Rule::All, "x y");
    server.watch(2, "gone");
    server.watch(3, "y gone");
    server.run(30);
    server.forget(2);
    server.forget(3);
    server.run(40);
    assert_eq!(server.shared(), "x");
    let trials = server.trials();
    server.run(600);
    assert_eq!(server.trials(), trials, "nobody asks for the name");
    server.watch(4, "gone");
    server.assert_updates(2);
    server.forget(1);
    server.run(40);
    // The last name of the type is in the request of all types: it silences nobody.
    assert_eq!(server.shared(), "gone");
    server.forget(4);
    server.forget(9);
    server.run(40);
    assert!(server.bench.source.is_idle());
}

/// The server answers with what exists from now on, as after an upgrade.
#[test]
fn a_server_that_changes_its_rule_has_one_request_again() {
    let mut server = served(Rule::All, "x y");
    server.watch(2, "gone gone2");
    server.run(40);
    assert_eq!(server.shared(), "x");
    server.set_rule(Rule::Any);
    server.watch(3, "y gone3");
    server.run(5);
    assert_eq!(server.shared(), "gone gone2 gone3 x y");
    server.run(30);
    assert_eq!(server.view("y gone3"), "y=1 -gone3");
    server.assert_updates(2);
}

#[test]
fn servers_with_delta_are_not_asked_twice() {
    let mut bench = Bench::streams();
    bench.watch(1, EDS, "a");
    bench.source.handle_upstream(0, upstream::Input::Opened, bench.now);
    bench.watch(2, EDS, "gone");
    bench.advance(Duration::from_secs(60));
    let Attachment::Streams(streams) = bench.source.attachment() else { panic!("files") };
    assert_eq!(streams.machines().count(), 1);
}
