//! Observers are told of changes that a client is not sent yet (RLY-71, ADM-7).

use std::time::Duration;

use super::bench::{Bench, CDS, ClientId, RDS, url};
use crate::downstream::{SourceId, UnsentNews, WhyUnsent};

/// The reason and the duration of a type's wait.
fn held(bench: &Bench, client: ClientId, message: &str) -> Option<(String, Duration)> {
    let latest = |id: SourceId| bench.snapshots.get(id.0 as usize).cloned();
    let session = &bench.clients[client].session;
    let index = session.subscriptions().iter().position(|of| of.type_url == url(message)).unwrap();
    let UnsentNews { why, since } = session.reports(&latest, bench.now).swap_remove(index).unsent?;
    let text = match why {
        WhyUnsent::Name(name) => format!("name {name}"),
        WhyUnsent::Order(type_url) => format!("order {}", type_url.short()),
        WhyUnsent::Withheld(name) => format!("withheld {name}"),
        WhyUnsent::Unread => "unread".to_owned(),
    };
    Some((text, since.map_or(Duration::ZERO, |since| bench.now.since(since))))
}

fn join(delta: bool) -> (Bench, ClientId) {
    let mut bench = Bench::files(&[(CDS, "x=1 z=1"), (RDS, "r=x")]);
    let client = if delta { bench.delta() } else { bench.sotw() };
    if delta {
        bench.change(client, CDS, "");
        bench.change(client, RDS, "+r");
    } else {
        bench.ask(client, CDS, "");
        bench.ask(client, RDS, "r");
    }
    bench.drain(client);
    assert_eq!((held(&bench, client, CDS), held(&bench, client, RDS)), (None, None));
    (bench, client)
}

#[test]
fn rly_71_routes_that_wait_for_the_ack_of_clusters_are_held() {
    for delta in [false, true] {
        let (mut bench, client) = join(delta);
        bench.state(0, &[(CDS, "x=2 z=1"), (RDS, "r=x")]);
        assert_eq!(held(&bench, client, CDS), Some(("unread".to_owned(), Duration::ZERO)));
        assert!(!bench.poll(client).is_empty());
        assert_eq!(held(&bench, client, CDS), None, "it was sent; that it is unACKed is another matter");
        bench.state(0, &[(CDS, "x=2 y=1 z=1"), (RDS, "r=y")]);
        assert_eq!(bench.poll(client), "");
        bench.advance(Duration::from_secs(5));
        let (why, since) = held(&bench, client, RDS).unwrap();
        assert_eq!(why, "order Cluster");
        assert!(since >= Duration::from_secs(5), "{since:?}");
        bench.ack(client, CDS);
        bench.drain(client);
        assert_eq!((held(&bench, client, CDS), held(&bench, client, RDS)), (None, None));
    }
}

#[test]
fn rly_71_a_removal_that_is_withheld_is_told_by_name() {
    for delta in [false, true] {
        let (mut bench, client) = join(delta);
        bench.state(0, &[(CDS, "y=1 z=1"), (RDS, "r=y")]);
        bench.poll(client);
        assert_eq!(bench.poll(client), "RouteConfiguration r=y");
        bench.ack(client, CDS);
        assert_eq!(bench.poll(client), "");
        bench.advance(Duration::from_secs(5));
        let (why, since) = held(&bench, client, CDS).unwrap();
        assert_eq!((why.as_str(), since), ("withheld x", Duration::from_secs(5)));
        bench.ack(client, RDS);
        bench.drain(client);
        assert_eq!((held(&bench, client, CDS), held(&bench, client, RDS)), (None, None));
    }
}

#[test]
fn rly_71_a_name_that_is_waited_for_is_told() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask_with(client, CDS, "a b", "", "7", None);
    bench.says(CDS, "a=1");
    assert_eq!(bench.poll(client), "");
    bench.advance(Duration::from_secs(5));
    assert_eq!(held(&bench, client, CDS), Some(("name b".to_owned(), Duration::from_secs(5))));
}
