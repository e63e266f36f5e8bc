#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::TcpListener;
use std::thread;

use super::*;
use crate::client::frame::{self, flag, kind};
use crate::client::{Profile, Response};
use crate::proto::{put_bytes, put_message};
use crate::xds::{Kind, Variant};

#[derive(Default)]
struct Log(Vec<String>);

impl Observer for Log {
    fn opened(&mut self, client: usize, _since: u64) {
        self.0.push(format!("{client} opened"));
    }

    fn response(&mut self, _client: usize, _kind: Kind, _response: &Response, _now: u64) {}

    fn served(&mut self, client: usize, _wait_ns: u64, again: bool) {
        self.0.push(format!("{client} served{}", if again { " again" } else { "" }));
    }

    fn lost(&mut self, client: usize) {
        self.0.push(format!("{client} lost"));
    }
}

/// The bytes of a server with one cluster.
fn answer() -> Vec<u8> {
    let mut message = Vec::new();
    put_message(&mut message, 2, |any| put_bytes(any, 2, "x"));
    put_bytes(&mut message, 4, Kind::Cluster.type_url());
    let mut grpc = vec![0, 0, 0, 0, message.len() as u8];
    grpc.extend(message);
    let mut wire = Vec::new();
    frame::put_settings(&mut wire, &[]);
    frame::put_frame(&mut wire, kind::HEADERS, flag::END_HEADERS, 1, &[0x88]);
    frame::put_frame(&mut wire, kind::DATA, 0, 1, &grpc);
    wire
}

fn goaway() -> Vec<u8> {
    let mut wire = Vec::new();
    frame::put_frame(&mut wire, kind::GOAWAY, 0, 0, &[0; 8]);
    wire
}

/// Opens a client of a server that sends these bytes, one entry per connection, and closes each connection
/// after the client's request. Runs until all are closed.
fn events(words: Vec<Vec<u8>>) -> (Vec<String>, Fleet) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        for word in words {
            let (mut socket, _) = listener.accept().unwrap();
            socket.write_all(&word).unwrap();
            // The client reads the end of the data before the end of the connection.
            socket.shutdown(std::net::Shutdown::Write).unwrap();
            let _ = io::copy(&mut socket, &mut io::sink());
        }
    });
    let requests = Requests::new(Profile::plain(Variant::Delta, 1));
    let (mut fleet, mut log) = (Fleet::new(target, requests, 1).unwrap(), Log::default());
    fleet.open(0, monotonic_ns(), &mut log);
    let patience = monotonic_ns() + 20_000_000_000;
    while fleet.is_open(0) && monotonic_ns() < patience {
        fleet.turn(patience, &mut log).unwrap();
    }
    assert!(!fleet.is_open(0), "the end of the connection was not noticed: {:?}", log.0);
    server.join().unwrap();
    (log.0, fleet)
}

#[test]
fn a_client_that_is_asked_to_come_back_does_so() {
    let (log, fleet) = events(vec![[answer(), goaway()].concat(), answer()]);
    assert_eq!(log, ["0 opened", "0 served", "0 opened", "0 served again", "0 lost"]);
    assert_eq!((fleet.drained(), fleet.lost()), (1, 1));
}

#[test]
fn a_server_that_closes_before_its_first_answer_gets_no_second_chance() {
    let (log, fleet) = events(vec![goaway()]);
    assert_eq!(log, ["0 opened", "0 lost"]);
    assert_eq!((fleet.drained(), fleet.lost(), fleet.waiting(), fleet.connected()), (0, 1, 0, 0));
}
