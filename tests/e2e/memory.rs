//! The memory budget on the binary (FP7).

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tonic::transport::Endpoint;

use crate::support::client::{Event, connect, node};
use crate::support::control_plane::eventually;
use crate::support::relay::run;
use crate::support::{Ask, CDS, Client, ControlPlane, DEADLINE, EDS, RDS, Relay, Setup, Variant};

#[tokio::test]
async fn fp7_no_connection_comes_in_while_memory_is_short() {
    let origin = ControlPlane::obedient().await;
    // No process is this small, so that the pressure exists from the first measurement on.
    let relay = Relay::start(Setup::of(origin.address).line("limits: { memory_bytes: 8MiB }")).await;
    let start = Instant::now();
    while relay.limit_hits("memory_bytes").await == 0.0 {
        assert!(start.elapsed() < DEADLINE);
        let mut socket = TcpStream::connect(&relay.address).await.unwrap();
        // The relay accepts the connection before the first measurement, and then waits for a preface.
        let _ = timeout(Duration::from_millis(50), socket.read(&mut [0; 1])).await;
    }
    // A separate thread writes the log, with some delay.
    for text in ["of its budget", "memory_bytes"] {
        eventually(text, || async { relay.log_lines("WARN").iter().any(|line| line.contains(text)) }).await;
    }
}

#[tokio::test]
async fn fp7_who_reads_nothing_is_cut_and_who_reads_stays() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "small", "1");
    origin.set(EDS, "small", "1");
    origin.set(RDS, "small", "1");
    let setup = Setup::of(origin.address).line("limits: { memory_bytes: 96MiB, source_bytes: 1GiB }");
    let relay = Relay::start(setup.server_line("max_response_bytes: 255MiB")).await;
    let mut stuck = Client::open(&relay.address, Variant::Sotw, "stuck").await;
    stuck.want(CDS, &["*"]);
    stuck.take(CDS).await;
    let mut reader = Client::open(&relay.address, Variant::Delta, "reader").await;
    reader.want(EDS, &["small"]);
    reader.take(EDS).await;

    // A read in progress takes one more message; later messages stay unread.
    stuck.stop_reading();
    stuck.want(RDS, &["small"]);
    stuck.take(RDS).await;
    // The cached resource, its encoding and the queued copy exceed the budget together.
    origin.set(CDS, "large", &"x".repeat(60 << 20));
    relay.limit_reaches("memory_bytes", 1.0).await;
    origin.set(EDS, "small", "2");
    reader.take(EDS).await;
    stuck.resume_reading();
    let end = timeout(DEADLINE, stuck.ended()).await.expect("the connection is closed");
    assert_ne!(end.code(), tonic::Code::Ok);
}

/// FP7: idle clients that hold the memory do not keep newcomers out.
#[tokio::test]
async fn fp7_newcomers_are_served_although_idle_clients_hold_the_memory() {
    const PERCENT: u64 = (96 << 20) / 100;
    const TAKEN: &str = "sluice_downstream_request_bytes_total";
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "small", "1");
    // Encodings go first, and would be enough here.
    let setup = Setup::of(origin.address).line("limits: { memory_bytes: 96MiB }");
    let relay = Relay::start(setup.line("cache: { encoded_bytes: 0 }")).await;
    // The connections are there before the budget refuses any, and stay.
    let mut idle = Vec::new();
    for _ in 0..60 {
        let channel = endpoint(&relay).connect().await.expect("there is room");
        idle.push(Client::on(channel, Variant::Delta, Some(node("idle"))));
    }
    let long = "n".repeat(3000);
    let leaves = || relay.log_lines("WARN").iter().any(|line| line.contains("idle clients leave"));
    let (mut full_since, mut served, mut sent) = (None, 0, 0.0);
    let mut batches = (0..idle.len()).flat_map(|client| (0..10).map(move |batch| (client, batch)));
    let mut least = 85 * PERCENT;
    while served < 3 {
        // Above 80 % nobody comes in, and above 90 % clients are cut. The allocator gives memory back later.
        if relay.resident() < least && !leaves() {
            let (client, batch) = batches.next().expect("the memory is full");
            // Impossible names need no answer of the server, and do not linger.
            let name = |number| format!("xdstp://{long}/{client}-{batch}-{number}");
            let names: Vec<String> = (0..50).map(name).collect();
            idle[client].send(Ask::of(EDS).subscribe(&names.iter().map(String::as_str).collect::<Vec<_>>()));
            sent += (50 * long.len()) as f64;
            // Small steps at the end, since a request in progress takes more memory than its names. A client that was cut
            // asks for nothing more.
            if batch == 9 || relay.resident() > 75 * PERCENT {
                let _ = timeout(Duration::from_secs(1), relay.metric_reaches(TAKEN, &[], sent)).await;
                sent = relay.metric(TAKEN, &[]).await;
            }
            continue;
        }
        let waited = full_since.get_or_insert_with(Instant::now).elapsed();
        assert!(waited < Duration::from_secs(60), "newcomers stay outside: {} MiB", relay.resident() >> 20);
        least = 81 * PERCENT;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let Ok(channel) = endpoint(&relay).connect().await else { continue };
        let mut newcomer = Client::on(channel, Variant::Delta, Some(node("newcomer")));
        newcomer.want(CDS, &["small"]);
        served += u32::from(matches!(newcomer.event().await, Event::Answer(_)) && leaves());
    }
}

fn endpoint(relay: &Relay) -> Endpoint {
    Endpoint::from_shared(format!("http://{}", relay.address)).unwrap()
}

/// SEC-1: TLS begins with the first byte of a peer, and a silent one takes no more memory than on a plaintext listener.
#[tokio::test]
async fn sec_1_a_silent_peer_costs_no_memory_of_tls() {
    const PEERS: u32 = 1_500;
    let certificates = tempfile::tempdir().unwrap();
    let issued = run(&["dev-certs", "."], certificates.path());
    assert_eq!(issued.0, 0, "{issued:?}");
    let file = |name: &str| certificates.path().join(name).display().to_string();
    let pair = format!(
        "tls: {{ certificates: [{{ certificate_file: {:?}, private_key_file: {:?} }}] }}",
        file("relay/tls.crt"),
        file("relay/tls.key")
    );
    let mut bytes = Vec::new();
    for (listener, shown) in
        [(String::new(), "sluice_downstream_connections"), (pair, "sluice_tls_handshakes_open")]
    {
        let origin = ControlPlane::obedient().await;
        let limits = "limits: { tls_handshake_timeout: 60s, preface_timeout: 60s }";
        let setup = Setup { listener, ..Setup::of(origin.address).line(limits) };
        let relay = Relay::start(setup).await;
        let before = relay.resident();
        let mut silent = Vec::new();
        for _ in 0..PEERS {
            silent.push(TcpStream::connect(&relay.address).await.unwrap());
        }
        eventually("all are there", || async { relay.series(shown).await >= f64::from(PEERS) }).await;
        bytes.push(relay.resident().saturating_sub(before) / u64::from(PEERS));
    }
    assert!(
        bytes[1] <= bytes[0] + (2 << 10),
        "{bytes:?} bytes for each silent peer, in plaintext and with TLS"
    );
}

/// The relay drops the encodings of an outdated state.
#[tokio::test]
async fn rly_55_encodings_of_what_was_are_dropped_with_the_next_state() {
    let origin = ControlPlane::obedient().await;
    let relay = Relay::start(Setup::of(origin.address)).await;
    let mut client = Client::open(&relay.address, Variant::Sotw, "client").await;
    origin.set(CDS, "large", &"x".repeat(500_000));
    client.want(CDS, &["*"]);
    client.take(CDS).await;
    for number in 0..8 {
        origin.set(CDS, "large", &format!("{number}{}", "x".repeat(500_000)));
        client.take(CDS).await;
    }
    // The current encoding, and one in transmission.
    let kept = relay.series("sluice_encoding_cache_bytes").await;
    assert!(kept < 2e6, "{kept} bytes");
}

/// Clients with the same names share one set of names, even if the names came step by step (ADR 22).
#[tokio::test]
async fn equal_sets_of_names_cost_a_client_at_most_8_kib() {
    const NAMES: usize = 1000;
    let origin = ControlPlane::obedient().await;
    let names: Vec<_> = (0..NAMES)
        .map(|number| format!("outbound|8080||service-{number:04}.default.svc.cluster.local"))
        .collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for name in &names {
        origin.set(EDS, name, "1");
    }
    let relay = Relay::start(Setup::of(origin.address)).await;
    // The streams of one connection share its buffers, which would cost more than the names.
    let channel = connect(&relay.address).await;
    let join = async |variant, steps: &[usize]| {
        let mut client = Client::on(channel.clone(), variant, Some(node("client")));
        for end in steps {
            client.want(EDS, &names[..*end]);
            while client.holds(EDS).len() < *end {
                client.take(EDS).await;
            }
        }
        client
    };
    let steps = [NAMES / 4, NAMES / 2, NAMES];
    let mut clients = Vec::new();
    // With a client at each step, all later clients share the encodings, too, which would stay in memory for a while.
    for step in steps {
        clients.push(join(Variant::Delta, &[step]).await);
        clients.push(join(Variant::Sotw, &[step]).await);
    }
    let mut resident = Vec::new();
    for count in [30, 60, 90] {
        while clients.len() < count {
            clients.push(join(Variant::Delta, &steps).await);
            clients.push(join(Variant::Sotw, &steps).await);
        }
        resident.push(relay.resident());
    }
    // The process grows for other reasons, too, but not with every 30 clients.
    let each: Vec<_> = resident.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) / 30).collect();
    assert!(each.iter().min() <= Some(&(8 << 10)), "{each:?} bytes for each client");
}

/// Prints the resident bytes of a set that nobody else has, with and without names that nobody else has (ADR 22).
#[tokio::test]
#[ignore = "prints figures; takes two minutes"]
async fn resident_bytes_of_sets_that_nobody_else_has() {
    const NAMES: usize = 20_000;
    for variant in [Variant::Delta, Variant::Sotw] {
        let origin = ControlPlane::obedient().await;
        let names: Vec<_> = (0..NAMES)
            .map(|number| format!("outbound|8080||service-{number:06}.default.svc.cluster.local"))
            .collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        names.iter().for_each(|name| origin.set(EDS, name, "1"));
        let relay = Relay::start(Setup::of(origin.address)).await;
        let channel = connect(&relay.address).await;
        let mut before = settled(&relay).await;
        let mut clients = Vec::new();
        // The first client makes the names known. Each later set lacks one more name.
        for (lacking, steps) in [1, 1, 1, 10, 10].into_iter().enumerate() {
            let mut client = Client::on(channel.clone(), variant, Some(node("client")));
            for step in 1..=steps {
                let end = NAMES * step / steps;
                client.want(EDS, &names[lacking..end]);
                while client.holds(EDS).len() < end - lacking {
                    client.take(EDS).await;
                }
            }
            clients.push(client);
            let after = settled(&relay).await;
            let each = (after as f64 - before as f64) / NAMES as f64;
            #[allow(clippy::print_stdout, reason = "a measurement")]
            {
                println!("{variant:?}, client {lacking}, {steps} steps: {each:.0} bytes a name");
            }
            before = after;
        }
    }
}

/// The resident memory, once encodings are dropped and the allocator has returned its spare pages.
async fn settled(relay: &Relay) -> u64 {
    let mut least = relay.resident();
    let mut same = 0;
    while same < 6 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = relay.resident();
        same = if now + (1 << 20) < least { 0 } else { same + 1 };
        least = least.min(now);
    }
    least
}
