//! Scripts of streams, played by the machines of a whole relay (`tests/sim`).

use sluice_xds::Variant;

use super::Target;
use super::draw::Draw;
use super::simulator::client::Want;
use super::simulator::schedule::{Act, Kind, MILLI, Mode, Plan, SECOND};
use super::simulator::words::{ALL, SHORT, TYPES, bits, is_full_state, list_of, maker};
use super::simulator::world::{World, play};

pub const STREAM_SCRIPT: Target = Target {
    name: "stream_script",
    run: |data| {
        let mut draw = Draw::new(data);
        let plan = plan(&mut draw);
        let acts = acts(&plan, &mut draw);
        check(&play(&plan, &acts, draw.number() >> 14, false, |_| {}));
    },
    seeds,
    words: &[],
    mutations: 60,
    memory: None,
};

pub const SOTW_AGAINST_DELTA: Target =
    Target { name: "sotw_against_delta", run: compare, seeds, words: &[], mutations: 60, memory: None };

/// Worlds of each generation of the simulator, and events of each kind.
fn seeds() -> Vec<Vec<u8>> {
    let seed = |number: u64| {
        let head = [number.to_be_bytes().to_vec(), vec![number as u8; 4]].concat();
        let act = |index: u64| [index as u8, (index * 7) as u8, (index * 13) as u8, number as u8];
        head.into_iter().chain((0..60).flat_map(act)).collect()
    };
    [1, 2, (1 << 20) + 6, (1 << 21) + 4, (1 << 21) + 9, (1 << 22) + 2].map(seed).to_vec()
}

fn plan(draw: &mut Draw<'_>) -> Plan {
    // The worlds from 2^47 on are still open (`tests/sim/README.md`).
    Plan::of_seed(draw.number() & ((1 << 40) - 1))
}

/// Four bytes for each event.
fn acts(plan: &Plan, draw: &mut Draw<'_>) -> Vec<Act> {
    let mut acts = Vec::new();
    while !draw.is_empty() && acts.len() < 300 {
        let (gap, what, choice) = (u64::from(draw.byte()), draw.byte() % 106, draw.byte());
        let gap = match gap {
            0..140 => gap * 15,
            140..205 => (gap - 139) * 600,
            205..250 => (gap - 204) * 45 * MILLI,
            _ => (gap - 249) * 7 * SECOND,
        };
        let exists = match what {
            100 | 101 => plan.names == ALL,
            102 => plan.moves,
            103 => plan.routes,
            104 => plan.failings.errors,
            105 => plan.failings.voids,
            _ => true,
        };
        let choice = u64::from(choice) << 8 | u64::from(draw.byte());
        // Spread, as the simulator draws from the high bits, too.
        let choice = choice.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        acts.push(Act { gap, what: if exists { what } else { what % 100 }, choice });
    }
    acts
}

fn check(world: &World) {
    if let Some(failure) = &world.failure {
        panic!("{} after {} us: {}", failure.invariant.id(), failure.at, failure.text);
    }
}

/// Pairs of clients with the same subscriptions, one in each variant of the protocol, end with the same resources.
fn compare(data: &[u8]) {
    let mut draw = Draw::new(data);
    let mut plan = plan(&mut draw);
    (plan.mode, plan.classes, plan.moves) = (Mode::Liveness, 1, false);
    // A complete set waits for a name of which a server says nothing at all, as long as the client may have it.
    plan.servers.iter_mut().for_each(|server| server.mute = false);
    plan.clients.truncate(2);
    for client in &mut plan.clients {
        (client.kind, client.class, client.rejects) = (Kind::Free, 0, 0);
    }
    let twins = plan.clients.clone();
    plan.clients.extend(twins);
    let pairs = plan.clients.len() / 2;
    for (index, client) in plan.clients.iter_mut().enumerate() {
        client.delta = index >= pairs;
    }
    let wants: Vec<Want> = (0..TYPES * pairs)
        .map(|_| {
            let names = u32::from(draw.byte()) | u32::from(draw.byte() & draw.byte()) << 8;
            Want { names: names & plan.names, wildcard: draw.byte().is_multiple_of(4) }
        })
        .collect();
    let acts = acts(&plan, &mut draw);
    let mut is_here = Vec::new();
    let world = play(&plan, &acts, 0, false, |world| {
        is_here = world.clients.iter().map(|client| !client.has_left).collect();
        for client in 0..2 * pairs {
            for ty in 0..TYPES {
                world.ask(client, ty, wants[client % pairs * TYPES + ty], "");
            }
        }
    });
    check(&world);
    for pair in (0..pairs).filter(|pair| is_here[*pair] && is_here[pair + pairs]) {
        let (sotw, delta) = (&world.clients[pair], &world.clients[pair + pairs]);
        assert_eq!((sotw.variant(), delta.variant()), (Variant::Sotw, Variant::Delta));
        for (ty, short) in SHORT.iter().enumerate() {
            let (sotw, delta) = (&sotw.types[ty], &delta.types[ty]);
            if (sotw.wanted, sotw.wildcard) != (delta.wanted, delta.wildcard) {
                continue;
            }
            // A name that was dropped beside a wildcard stays at the client until the next response.
            let wanted = if sotw.wildcard { plan.names & !sotw.stale } else { sotw.wanted };
            // A set of a wildcard waits for a name beside it that the client has from another server, as long as this
            // server says nothing of the name (ADR 12).
            let waits = |newer: u32| {
                let beside = bits(if sotw.wildcard { sotw.wanted } else { 0 });
                beside.map(|name| sotw.resources[name]).any(|own| own != 0 && own >> 24 != newer >> 24)
            };
            for name in bits(wanted) {
                let (sotw, delta) = (sotw.resources[name], delta.resources[name]);
                // A client keeps what it has from the second server as long as the first one says nothing of the name, and its twin
                // may have come later.
                let second = 2 * list_of(name) + 1;
                let is_kept = |own: u32, other: u32| own != 0 && maker(own) == second && other == 0;
                // SotW cannot tell the absence of a name of these types.
                let may_differ = !is_full_state(ty) && delta == 0
                    || waits(delta)
                    || is_kept(sotw, delta)
                    || is_kept(delta, sotw);
                assert!(sotw == delta || may_differ, "{} {name}: SotW has {sotw}, delta has {delta}", short);
            }
        }
    }
}

/// Found by libFuzzer: one of two twins came while the first server was lost.
#[test]
fn a_client_keeps_what_the_first_server_never_speaks_of() {
    compare(
        b"\xf3\xd6\xde\xd6\xd6\xd9\x21\xd6\xd6\x21\xff\xff\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\
          \xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\
          \xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\xbd\x00\x05\
          \x00\x00\x30\x30\x30\x30\x61\x62\x30\x31\x2d\x39\x01\xbf\xbd\xbd\xe1\xbd\xbd",
    );
}

/// Found by libFuzzer: a server takes 80 s for its messages, and names are absent a silence later.
#[test]
fn i1_a_slow_server_has_its_time_before_all_is_judged() {
    compare(b"\x16\xf9\x2f\x00\xd7\x10\x06\x69\x16\x2f\x00\xd7\x10");
}

/// Found by libFuzzer: the client has c of RDS from the second server, and the first one never speaks of c.
#[test]
fn rly_5_a_set_of_a_wildcard_may_wait_for_a_name_from_another_server() {
    compare(b"\x00\x00\xa1\x2b\x04\x18\xa8\x38\x04\x04\x1a\x19\xaf\xff\xff\xff\x18\x45\x26\x52\x04\x1b\x30\x30\x30\x30ab05-4\xbd\x5f\x04\x1c\x00\x0e\x00");
}
