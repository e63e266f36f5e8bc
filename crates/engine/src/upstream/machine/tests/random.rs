//! Random schedules: the machine keeps the protocol, whatever the server and the source do.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::script::{Script, delta, legacy, sotw};
use super::*;
use crate::collection::CollectionKind;

fn input() -> impl Strategy<Value = String> {
    let short = prop::sample::select(vec!["CDS", "EDS", "LDS"]);
    let name = prop::sample::select(vec!["a", "b", "c", "*"]);
    let element = prop::sample::select(vec![
        "a=1",
        "a=2",
        "b=1",
        "b=1^",
        "c=1/a",
        "~a=1",
        "~b=",
        "!a",
        "!",
        "a:NOT_FOUND",
        "b:UNAVAILABLE",
        "c:OK",
        "-a",
        "-b",
        "a=1#1100",
    ]);
    let code = prop::sample::select(vec!["OK", "UNAVAILABLE", "UNKNOWN", "UNIMPLEMENTED"]);
    let wait = prop::sample::select(vec!["1ms", "60ms", "300ms", "11s", "3600s"]);
    prop_oneof![
        4 => (short.clone(), name.clone()).prop_map(|(short, name)| format!("+ {short} {name}")),
        3 => (short.clone(), name).prop_map(|(short, name)| format!("- {short} {name}")),
        6 => (short, 0..9, prop::collection::vec(element, 0..4)).prop_map(|(short, nonce, elements)| {
            format!("{short} v{nonce} n{nonce} {}", elements.join(" "))
        }),
        4 => Just("opened".to_owned()),
        1 => Just("alive".to_owned()),
        1 => Just("unconnected".to_owned()),
        1 => code.prop_map(|code| format!("closed {code}")),
        3 => wait.prop_map(|wait| format!("after {wait}")),
    ]
}

/// The history of the stream, judged from outside.
#[derive(Default)]
struct Judge {
    /// Latest nonce by type. A type has an entry from its first request on.
    nonces: BTreeMap<String, String>,
    has_spoken: bool,
    is_legacy: bool,
}

impl Judge {
    fn received(&mut self, input: &str) -> Option<bool> {
        let mut words = input.split_whitespace();
        let type_url = super::script::type_url(words.next()?).as_str().to_owned();
        let nonce = words.nth(1)?;
        let latest = self.nonces.get_mut(&type_url);
        Some(latest.map(|latest| nonce.clone_into(latest)).is_some())
    }

    fn sent(&mut self, request: &Request, first: bool) -> bool {
        assert_eq!(first, !self.has_spoken, "node with the first message of a stream only");
        self.has_spoken = true;
        let (type_url, nonce, is_delta) = match request {
            Request::Sotw(request) => (&request.type_url, &request.response_nonce, false),
            Request::Delta(request) => (&request.type_url, &request.response_nonce, true),
        };
        match self.nonces.get(type_url) {
            None => assert_eq!(nonce, "", "the first request of a type has no nonce"),
            Some(latest) => assert!(nonce == latest || is_delta && nonce.is_empty(), "the newest nonce"),
        }
        if let Request::Sotw(request) = request {
            let is_first = !self.nonces.contains_key(type_url);
            assert!(
                self.is_legacy || !is_first || !request.resource_names.is_empty(),
                "an empty first request"
            );
        }
        if let (Request::Delta(request), true) = (request, self.nonces.contains_key(type_url)) {
            assert!(request.initial_resource_versions.is_empty(), "initial versions but in a first request");
        }
        self.nonces.entry(type_url.clone()).or_default();
        !is_delta || !nonce.is_empty()
    }
}

/// `PROPTEST_CASES` selects more histories.
fn config() -> ProptestConfig {
    let given = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { given.cases } else { 150 };
    ProptestConfig { cases, ..given }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn ack_8_every_response_asked_for_is_answered_once(
        which in 0..4usize,
        inputs in prop::collection::vec(input(), 1..80),
    ) {
        let settings = [sotw(), delta(), legacy(sotw()), legacy(delta())][which].clone();
        let is_legacy = settings.wildcard == WildcardStyle::Legacy;
        let mut judge = Judge { is_legacy, ..Judge::default() };
        let mut script = Script::new(settings);
        for input in &inputs {
            let was_open = script.upstream.state() == LinkState::Open;
            let is_response = !"+-".contains(&input[..1]) && input.contains(" v");
            let asked = is_response && was_open && judge.received(input).unwrap();
            let (mut answers, mut sent, mut ignored) = (0, 0, 0);
            for output in script.raw(input) {
                match output {
                    Output::Open { .. } => judge = Judge { is_legacy, ..Judge::default() },
                    Output::Send { request, first } => {
                        sent += 1;
                        answers += usize::from(judge.sent(&request, first));
                    }
                    Output::Event(Event::Ignored { .. }) => ignored += 1,
                    Output::Changes(changes) => {
                        prop_assert!(changes.kind == CollectionKind::Wildcard || !changes.replaces && !changes.complete);
                    }
                    _ => {}
                }
            }
            if is_response && was_open {
                // Without wanted names, an old SotW server gets no ACK.
                let unanswerable = is_legacy && ignored == 1;
                prop_assert_eq!(answers, usize::from(asked && !unanswerable), "{}", input);
                prop_assert_eq!(sent, answers, "a response causes nothing but its answer");
            }
        }
    }
}
