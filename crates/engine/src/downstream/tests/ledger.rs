//! Observers are told of each name of a client: the version that it has, and the version that it should have (ADM-7).

use std::time::Duration;

use super::bench::{Bench, CDS, ClientId, EDS, RDS, url};
use crate::downstream::{HeldVersion, NameStanding, SourceId};
use sluice_xds::{ResourceName, Version};

fn version(of: Option<Version>) -> String {
    of.map_or_else(|| "-".to_owned(), |version| { version.0 }.to_string())
}

/// Each name as `name has>should standing`. Equal versions are written once.
fn ledger(bench: &Bench, client: ClientId, message: &str) -> String {
    let latest = |id: SourceId| bench.snapshots.get(id.0 as usize).cloned();
    let ledger = bench.clients[client].session.ledger(&url(message), &latest, bench.now).unwrap();
    let mut last: Option<ResourceName> = None;
    let mut rows = Vec::new();
    while let Some(name) = ledger.next_name(last.as_ref()) {
        let entry = ledger.entry(name.clone());
        let has = match entry.has {
            Some(HeldVersion::Unknown) => "?".to_owned(),
            has => version(has.and_then(HeldVersion::known)),
        };
        let should = version(entry.should);
        let versions = if has == should { has } else { format!("{has}>{should}") };
        let standing = match entry.standing {
            NameStanding::Current => String::new(),
            other => format!(" {other:?}"),
        };
        rows.push(format!("{name} {versions}{standing}"));
        last = Some(name);
    }
    rows.join(", ")
}

/// The versions of a type as a whole.
fn versions(bench: &Bench, client: ClientId, message: &str) -> (Option<Version>, Option<Version>) {
    let latest = |id: SourceId| bench.snapshots.get(id.0 as usize).cloned();
    let session = &bench.clients[client].session;
    let index = session.subscriptions().iter().position(|of| of.type_url == url(message)).unwrap();
    let report = session.reports(&latest, bench.now).swap_remove(index);
    (session.subscriptions()[index].version_held(), report.should)
}

fn join(delta: bool, state: &[(&str, &str)]) -> (Bench, ClientId) {
    let mut bench = Bench::files(state);
    let client = if delta { bench.delta() } else { bench.sotw() };
    if delta {
        bench.change(client, CDS, "");
        bench.change(client, RDS, "+r +s");
    } else {
        bench.ask(client, CDS, "");
        bench.ask(client, RDS, "r s");
    }
    bench.drain(client);
    (bench, client)
}

#[test]
fn adm_7_a_client_has_what_it_accepted_and_should_have_what_its_server_has() {
    for delta in [false, true] {
        let (mut bench, client) = join(delta, &[(CDS, "x=1 z=1"), (RDS, "r=x s=z")]);
        let before = ledger(&bench, client, CDS);
        assert!(!before.contains(['>', 'U']), "{before}");
        let (has, should) = versions(&bench, client, CDS);
        assert_eq!(has, should);

        bench.state(0, &[(CDS, "x=2 y=1 z=1"), (RDS, "r=y s=z")]);
        let held = ledger(&bench, client, CDS);
        assert_eq!(held.matches("Unsent").count(), 2, "x and y: {held}");
        bench.poll(client);
        let sent = ledger(&bench, client, CDS);
        assert_eq!(sent, held.replace("Unsent", "Unacked"), "a message that is on its way changes nothing");
        let (still, newest) = versions(&bench, client, CDS);
        assert_eq!((still, newest == should), (has, false));
        assert_eq!(ledger(&bench, client, RDS).matches("Unsent").count(), 1, "r waits for the ACK of y");

        bench.ack(client, CDS);
        assert_eq!(versions(&bench, client, CDS), (newest, newest));
        bench.drain(client);
        assert!(!ledger(&bench, client, CDS).contains(['>', 'U']));
        assert!(!ledger(&bench, client, RDS).contains(['>', 'U']));
    }
}

#[test]
fn adm_7_a_rejected_resource_is_what_the_client_should_have_and_does_not() {
    for delta in [false, true] {
        for message in [CDS, RDS] {
            let (mut bench, client) = join(delta, &[(CDS, "x=1"), (RDS, "r=x s=x")]);
            let (has, _) = versions(&bench, client, message);
            match message {
                CDS => bench.state(0, &[(CDS, "x=2"), (RDS, "r=x s=x")]),
                _ => bench.state(0, &[(CDS, "x=1 y=1"), (RDS, "r=y s=x")]),
            }
            for _ in 0..3 {
                bench.poll(client);
                if message == RDS {
                    bench.ack(client, CDS);
                }
            }
            bench.nack(client, message);
            let rejected = ledger(&bench, client, message);
            assert_eq!(rejected.matches("Rejected").count(), 1, "{rejected}");
            assert_eq!(versions(&bench, client, message).0, has);
        }
    }
}

#[test]
fn adm_7_names_that_nobody_knows_are_unknown_and_not_in_sync() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, EDS, "+a +b +c");
    bench.says(EDS, "a=1 -b");
    assert_eq!(ledger(&bench, client, EDS).matches("Unknown").count(), 1);
    bench.drain(client);
    let rows = ledger(&bench, client, EDS);
    assert!(rows.contains("b -, c - Unknown"), "{rows}");
}

#[test]
fn adm_7_a_withheld_removal_is_told_at_its_name() {
    for delta in [false, true] {
        let (mut bench, client) = join(delta, &[(CDS, "x=1 z=1"), (RDS, "r=x s=z")]);
        bench.state(0, &[(CDS, "y=1 z=1"), (RDS, "r=y s=z")]);
        for _ in 0..2 {
            bench.poll(client);
        }
        bench.ack(client, CDS);
        bench.poll(client);
        bench.advance(Duration::from_secs(5));
        let rows = ledger(&bench, client, CDS);
        assert_eq!(rows.matches("Withheld").count(), 1, "{rows}");
        assert!(rows.starts_with("x "), "{rows}");
    }
}

/// ORD-5: equal endpoints are sent again after their cluster. The client has them all the while.
#[test]
fn adm_7_what_a_client_accepted_stays_known_while_it_is_sent_again() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "x=e1 y=e1"), (EDS, "x=1 y=1")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        if delta {
            bench.change(client, CDS, "");
            bench.change(client, EDS, "+x +y");
        } else {
            bench.ask(client, CDS, "");
            bench.ask(client, EDS, "x y");
        }
        bench.drain(client);
        let (rows, (has, should)) = (ledger(&bench, client, EDS), versions(&bench, client, EDS));
        assert!(has == should && !rows.contains(['>', 'U', '?']), "{rows}");
        let stays = |bench: &Bench, at: &str| {
            assert_eq!(ledger(bench, client, EDS), rows, "{at}");
            assert_eq!(versions(bench, client, EDS), (has, should), "{at}");
            let latest = |id: SourceId| bench.snapshots.get(id.0 as usize).cloned();
            let session = &bench.clients[client].session;
            assert!(session.ledger(&url(EDS), &latest, bench.now).unwrap().has(&"x".into()).is_some());
            let of = session.subscriptions().iter().find(|of| of.type_url == url(EDS)).unwrap();
            assert_eq!(of.version_of_sent(), has, "{at}");
        };
        for round in 2..4 {
            bench.state(0, &[(CDS, &format!("x=e{round} y=e1")), (EDS, "x=1 y=1")]);
            assert!(bench.poll(client).starts_with("Cluster x=e"));
            stays(&bench, "due again");
            assert_eq!(bench.poll(client), "ClusterLoadAssignment x=1");
            stays(&bench, "sent again");
            bench.ack(client, CDS);
            bench.advance(Duration::from_secs(3600));
            stays(&bench, "not answered");
            match round {
                2 => drop(bench.ack(client, EDS)),
                _ => drop(bench.nack(client, EDS)),
            }
            stays(&bench, "answered");
        }
        // Something else is accepted.
        bench.state(0, &[(CDS, "x=e3 y=e1"), (EDS, "x=2 y=1")]);
        bench.poll(client);
        assert_eq!(versions(&bench, client, EDS).0, has);
        bench.ack(client, EDS);
        let (now, should) = versions(&bench, client, EDS);
        assert!(now == should && now != has);
    }
}

/// The content of a rejected response is sent again, and accepted then.
#[test]
fn adm_7_rejected_content_that_is_sent_again_is_accepted_with_its_ack() {
    for delta in [false, true] {
        let (mut bench, client) = join(delta, &[(CDS, "x=e1"), (RDS, "r=x s=x")]);
        if delta {
            bench.change(client, EDS, "+x");
        } else {
            bench.ask(client, EDS, "x");
        }
        bench.state(0, &[(CDS, "x=e1"), (EDS, "x=1"), (RDS, "r=x s=x")]);
        bench.drain(client);
        let (has, _) = versions(&bench, client, EDS);
        bench.state(0, &[(CDS, "x=e1"), (EDS, "x=2"), (RDS, "r=x s=x")]);
        bench.poll(client);
        bench.nack(client, EDS);
        assert_eq!(versions(&bench, client, EDS).0, has);
        bench.state(0, &[(CDS, "x=e2"), (EDS, "x=2"), (RDS, "r=x s=x")]);
        bench.poll(client);
        assert_eq!(versions(&bench, client, EDS).0, has, "due again");
        assert_eq!(bench.poll(client), "ClusterLoadAssignment x=2");
        assert_eq!(versions(&bench, client, EDS).0, has, "sent again");
        bench.ack(client, CDS);
        bench.ack(client, EDS);
        let (now, should) = versions(&bench, client, EDS);
        assert!(now == should && now != has, "accepted");
        assert!(!ledger(&bench, client, EDS).contains(['>', 'U', '?']));
    }
}
