//! The memory and the CPU of thousands of idle clients, by transport: the crate `h2`, and a server side of HTTP/2 that
//! holds no buffer while idle (`docs/adr/0076-h2-stays.md`). The relay is not in it.
//!
//! Each run has a fresh server process, and the server starts a process with all clients. A run fails if a client does not
//! get each update byte for byte.
//!
//! Both transports leave out everything of the relay above and below HTTP/2: sessions, limits, the meter of frames,
//! keepalive, TLS.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

mod bare;
mod clients;
mod frames;
mod hub;
mod server;
mod with_h2;

use std::fmt::Debug;
use std::io;
use std::process::{Command, Stdio};
use std::str::FromStr;

use tokio::runtime::Builder;

use server::{Figures, Kind, Load, measure};

/// The allocator of the relay.
#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A window that no client of a measurement uses up.
const WIDE: u32 = 16 << 20;

/// A window shorter than an update, so that the server has to wait for more.
const NARROW: u32 = 600;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["clients", address, rounds, window, headers] => {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let run = clients::run(number(address)?, number(rounds)?, number(window)?, headers);
            runtime.block_on(run)?;
            println!("all updates are whole");
            Ok(())
        }
        ["serve", kind, clients, rounds, window, headers] => {
            let kind = Kind::ALL.into_iter().find(|known| known.name() == kind);
            let kind = kind.ok_or_else(|| io::Error::other("no such kind"))?;
            let load = load(number(clients)?, number(rounds)?, number(window)?, headers);
            // As in the relay.
            let runtime = Builder::new_multi_thread().enable_all().build()?;
            let Figures { idle_bytes, used_bytes, user_us, system_us } =
                runtime.block_on(measure(kind, &load))?;
            println!("{idle_bytes} {used_bytes} {user_us} {system_us}");
            Ok(())
        }
        _ => compare(&arguments),
    }
}

/// Takes the figures of all kinds in turns, and prints them.
fn compare(arguments: &[String]) -> io::Result<()> {
    let (clients, rounds) = (option(arguments, "--clients", 10_000)?, option(arguments, "--rounds", 20)?);
    let runs: usize = option(arguments, "--runs", 3)?;
    let headers = option(arguments, "--headers", "plain".to_owned())?;
    for kind in Kind::ALL {
        run(kind, &load(50, 100, NARROW, &headers))?;
    }
    println!("{clients} clients, {rounds} rounds of 1 KiB, {headers} headers");
    let mut taken: [Vec<Figures>; 3] = Default::default();
    for turn in 0..runs {
        for at in (0..3).map(|at| (at + turn) % 3) {
            let (kind, load) = (Kind::ALL[at], load(clients, rounds, WIDE, &headers));
            let figures = run(kind, &load)?;
            println!("{:<9} run {}: {}", kind.name(), turn + 1, told(&[figures]));
            taken[at].push(figures);
        }
    }
    println!("\nmedians, with ranges:");
    for (kind, figures) in Kind::ALL.into_iter().zip(&taken) {
        println!("{:<9} {}", kind.name(), told(figures));
    }
    Ok(())
}

fn load(clients: usize, rounds: u64, window: u32, headers: &str) -> Load {
    Load { clients, rounds, window, headers: headers.to_owned() }
}

/// A run in a process of its own.
fn run(kind: Kind, load: &Load) -> io::Result<Figures> {
    let numbers = [load.clients.to_string(), load.rounds.to_string(), load.window.to_string()];
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve", kind.name()]).args(numbers).arg(&load.headers).stderr(Stdio::inherit());
    let output = command.output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("{} failed", kind.name())));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<f64> = text.split_whitespace().map(number).collect::<io::Result<_>>()?;
    match figures[..] {
        [idle_bytes, used_bytes, user_us, system_us] => {
            Ok(Figures { idle_bytes, used_bytes, user_us, system_us })
        }
        _ => Err(io::Error::other("a run printed other lines than its figures")),
    }
}

fn told(runs: &[Figures]) -> String {
    let column = |unit: &str, of: fn(&Figures) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        let median = values.get(values.len() / 2).copied().unwrap_or(f64::NAN);
        match (values.first(), values.last()) {
            (Some(least), Some(most)) if runs.len() > 1 => {
                format!("{median:.2} {unit} ({least:.2} to {most:.2})")
            }
            _ => format!("{median:.2} {unit}"),
        }
    };
    [
        column("KiB idle", |figures| figures.idle_bytes / 1024.0),
        column("KiB after the rounds", |figures| figures.used_bytes / 1024.0),
        column("us CPU", |figures| figures.user_us + figures.system_us),
        column("us user", |figures| figures.user_us),
        column("us system", |figures| figures.system_us),
    ]
    .join(", ")
}

/// The value behind the name of an option.
fn option<T: FromStr<Err: Debug>>(arguments: &[String], name: &str, default: T) -> io::Result<T> {
    let at = arguments.iter().position(|argument| argument == name);
    at.and_then(|at| arguments.get(at + 1)).map_or(Ok(default), |text| number(text))
}

fn number<T: FromStr<Err: Debug>>(text: &str) -> io::Result<T> {
    text.parse().map_err(|error| io::Error::other(format!("{text}: {error:?}")))
}
