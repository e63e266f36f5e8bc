//! Floods of HTTP/2 frames (FD19), each in plaintext and through TLS. Each costs the relay more than its sender, and ends its
//! connection.

use crate::attack::{Attack, BOTH, Script, Sign, attack, closes, goaways, limits};
use crate::flood::{Frames, Ids};
use crate::frames::*;
use crate::support::words::Ask;
use crate::support::{CDS, client};

/// The library of HTTP/2 ends the connection with a GOAWAY, as abuse or as an error of the protocol.
const ABUSE: Sign = goaways(&["abuse"]);
const ERROR: Sign = closes(&["error"]);
/// Either of them comes first.
const LIMIT: Sign = limits(&["http2_abuse", "control_frames"]);
const FLOOD: Sign = closes(&["control_flood"]);

const fn flood(name: &'static str, shown_by: Sign, frames: Frames) -> Attack {
    attack(name, BOTH, shown_by, Script::Frames(frames))
}

pub const ALL: &[Attack] = &[
    flood("rapid reset", ABUSE, Frames::of(rapid_reset)),
    flood("resets of accepted calls", LIMIT, Frames::of(late_resets)),
    flood("errors that reset: a forbidden header", ABUSE, Frames::of(forbidden_header)),
    flood("errors that reset: a window overflows", ABUSE, Frames::of(window_overflow)),
    flood("errors that reset: a priority on itself", LIMIT, Frames::of(self_priority)),
    flood("errors that reset: a window opens by zero", ERROR, Frames::of(zero_window)).counts_some(),
    flood("errors that reset: data after the end", ERROR, Frames::of(late_data)).counts_some(),
    flood("streams", LIMIT, Frames::of(streams)),
    flood("streams with large headers", LIMIT, Frames::of(large_headers)),
    flood("giant headers", LIMIT, Frames::of(giant_headers)),
    flood("CONTINUATION", ABUSE, Frames::of(continuation).after(open_headers)),
    flood("empty CONTINUATION", ABUSE, Frames::of(empty_continuation).after(open_headers)),
    flood("HPACK bomb", ABUSE, Frames::of(bomb)).counts_some(),
    flood("DATA of one byte", ABUSE, Frames::of(small_data).after(half_message)).counts_some(),
    flood("empty DATA", ABUSE, Frames::of(empty_data).after(half_message)).counts_some(),
    flood("PING", FLOOD, Frames::of(pings)),
    flood("SETTINGS", FLOOD, Frames::of(settings)).counts_some(),
    flood("PING, unread", FLOOD, Frames::of(pings).unread()),
    flood("SETTINGS, unread", FLOOD, Frames::of(settings).unread()).counts_some(),
    flood("PRIORITY", FLOOD, Frames::of(priorities)),
    flood("unknown frames", FLOOD, Frames::of(unknown)),
    flood("a window of one byte", FLOOD, Frames::of(window_by_byte).after(small_window)),
    flood("windows that nobody needs", FLOOD, Frames::of(idle_windows)),
];

fn rapid_reset(ids: &mut Ids) -> Vec<u8> {
    times(50, || {
        let id = ids.next();
        [headers(id), reset(id)].concat()
    })
}

/// The calls are accepted first: the resets of a round come after the calls of the next.
fn late_resets(ids: &mut Ids) -> Vec<u8> {
    times(20, || {
        let id = ids.next();
        let late = if id > 40 { reset(id - 40) } else { Vec::new() };
        [late, headers(id)].concat()
    })
}

fn forbidden_header(ids: &mut Ids) -> Vec<u8> {
    times(20, || headers_with(ids.next(), &[("connection", "keep-alive")]))
}

fn window_overflow(ids: &mut Ids) -> Vec<u8> {
    times(20, || {
        let id = ids.next();
        [headers(id), window_update(id, i32::MAX as u32)].concat()
    })
}

fn self_priority(ids: &mut Ids) -> Vec<u8> {
    times(20, || {
        let id = ids.next();
        [headers(id), frame(PRIORITY, 0, id, &[&id.to_be_bytes()[..], &[1]].concat())].concat()
    })
}

fn zero_window(ids: &mut Ids) -> Vec<u8> {
    times(20, || {
        let id = ids.next();
        [headers(id), window_update(id, 0)].concat()
    })
}

fn late_data(ids: &mut Ids) -> Vec<u8> {
    times(20, || {
        let id = ids.next();
        [headers(id), frame(DATA, END_STREAM, id, &[0; 5]), frame(DATA, 0, id, &[0; 5])].concat()
    })
}

fn streams(ids: &mut Ids) -> Vec<u8> {
    times(50, || headers(ids.next()))
}

fn large_headers(ids: &mut Ids) -> Vec<u8> {
    let value = "x".repeat(7_000);
    times(20, || headers_with(ids.next(), &[("x-large", &value)]))
}

fn giant_headers(ids: &mut Ids) -> Vec<u8> {
    let value = "x".repeat(60_000);
    times(5, || headers_with(ids.next(), &[("x-giant", &value)]))
}

fn open_headers(ids: &mut Ids) -> Vec<u8> {
    frame(HEADERS, 0, ids.next(), &fields(&[]))
}

fn continuation(ids: &mut Ids) -> Vec<u8> {
    frame(CONTINUATION, 0, ids.last(), &literal(0, "x-more", &"x".repeat(8_000)))
}

fn empty_continuation(ids: &mut Ids) -> Vec<u8> {
    times(100, || frame(CONTINUATION, 0, ids.last(), &[]))
}

/// One entry of the dynamic table, and 12,000 references to the entry.
fn bomb(ids: &mut Ids) -> Vec<u8> {
    const NEWEST_ENTRY: u8 = 0x80 | 62;
    let block =
        [fields(&[]), literal(0x40, "x-bomb", &"x".repeat(4_000)), vec![NEWEST_ENTRY; 12_000]].concat();
    let (first, rest) = block.split_at(16_000);
    let id = ids.next();
    [frame(HEADERS, 0, id, first), frame(CONTINUATION, END_HEADERS, id, rest)].concat()
}

/// A call with the head of a message of 1 MiB.
fn half_message(ids: &mut Ids) -> Vec<u8> {
    let id = ids.next();
    [headers(id), frame(DATA, 0, id, &[0, 0, 16, 0, 0])].concat()
}

fn small_data(ids: &mut Ids) -> Vec<u8> {
    times(200, || frame(DATA, 0, ids.last(), &[0]))
}

fn empty_data(ids: &mut Ids) -> Vec<u8> {
    times(200, || frame(DATA, 0, ids.last(), &[]))
}

fn pings(_: &mut Ids) -> Vec<u8> {
    frame(PING, 0, 0, &[0; 8]).repeat(500)
}

fn settings(_: &mut Ids) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[]).repeat(500)
}

fn priorities(_: &mut Ids) -> Vec<u8> {
    frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 1]).repeat(500)
}

fn unknown(_: &mut Ids) -> Vec<u8> {
    frame(UNKNOWN, 0, 0, &[0; 16]).repeat(500)
}

fn small_window(ids: &mut Ids) -> Vec<u8> {
    let ask = Ask { node: Some(client::node("attacker")), ..Ask::of(CDS).subscribe(&["*"]) };
    let id = ids.next();
    [initial_window(1), headers(id), request(id, ask)].concat()
}

fn window_by_byte(ids: &mut Ids) -> Vec<u8> {
    window_update(ids.last(), 1).repeat(100)
}

fn idle_windows(_: &mut Ids) -> Vec<u8> {
    window_update(0, 1).repeat(500)
}
