//! `sluice ui`: the page of a relay on a port of this host, for a browser without the caller's token or
//! certificate (PAG-3).
//!
//! 1. `gate`: the check of each request. `forward`: a request to the relay, and the answer.

mod gate;
mod forward;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use http::Method;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::address::Target;
use super::arguments::RelayArguments;
use super::console::Console;
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::request::Caller;
use super::text::{parse_duration, safe};

/// Connections at a time. A browser opens at most six.
const CONNECTIONS_MAX: usize = 64;

/// The time for a request head, and for an idle connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const HEADERS_MAX: usize = 64;
const BUFFER_BYTES_MAX: usize = 16 << 10;

/// The pause after a failed accept, for example with too many open files.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Ui {
    /// The port on 127.0.0.1 [default: a free one].
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// End after this time [default: never].
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    time: Option<Duration>,
    #[command(flatten)]
    reach: RelayArguments,
}

const HELP: &str = "\
Serves the page of one relay on a port of this host, and asks the relay as the other commands do: with your token, your \
certificate, over a unix socket. The page changes nothing, and only the page can be read. Whoever can open the port reads \
it, so end the command when you have seen enough; --for does that by itself.

Output:
  the address of the page

Examples:
  sluice ui --for 1s
  sluice ui --port 0 --for 1s

Exit codes: 0 the time is over; 64 the relay refuses you, or the port is in use; 69 the relay does not answer.";

pub(super) async fn run(ui: Ui, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let Relays { relays, caller } = Relays::new(&ui.reach).await?;
    let [relay] = relays.as_slice() else {
        let text = "the page shows one relay; name one by --relay";
        return Err(Failure::Usage(text.to_owned()));
    };
    // The caller learns at once of a wrong address or a missing role.
    if let Err(missing) = caller.open(relay, &Method::GET, "/ui/", "text/html").await {
        let text = format!("relay {}: {}", relay.label, safe(&missing.text()));
        return Err(if missing.is_usage() { Failure::Usage(text) } else { Failure::Unavailable(text) });
    }
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, ui.port));
    let listener = TcpListener::bind(at).await;
    let listener = listener.map_err(|error| Failure::Usage(format!("--port {}: {error}", ui.port)))?;
    let at = listener.local_addr().map_err(|error| Failure::Internal(error.to_string()))?;
    writeln!(console.out, "http://{at}/ui/")?;
    console.out.flush()?;
    let serving = serve(listener, caller, relay.clone());
    match ui.time {
        None => serving.await,
        Some(time) => timeout(time, serving).await.unwrap_or_default(),
    }
    Ok(Outcome::Good)
}

async fn serve(listener: TcpListener, caller: Caller, relay: Target) {
    let (places, caller, relay) =
        (Arc::new(Semaphore::new(CONNECTIONS_MAX)), Arc::new(caller), Arc::new(relay));
    let mut connections = JoinSet::new();
    // The semaphore is never closed.
    while let Ok(place) = places.clone().acquire_owned().await {
        while connections.try_join_next().is_some() {}
        let Ok((io, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let (caller, relay) = (caller.clone(), relay.clone());
        connections.spawn(async move {
            drive(io, caller, relay).await;
            drop(place);
        });
    }
}

async fn drive(io: TcpStream, caller: Arc<Caller>, relay: Arc<Target>) {
    let service = service_fn(move |request| {
        let (caller, relay) = (caller.clone(), relay.clone());
        async move { Ok::<_, Infallible>(forward::answer(&caller, &relay, request).await) }
    });
    // An error of the connection is the browser's to see.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_headers(HEADERS_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(io), service)
        .await;
}
