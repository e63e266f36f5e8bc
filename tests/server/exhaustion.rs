//! Running out of file descriptors (FD21), in a child process with a low limit.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sluice::server::ServerLimits;

use crate::kit::start;

const DESCRIPTORS: u64 = 40;

/// The server of the test below; does nothing unless started by the test.
#[tokio::test]
#[ignore = "started by fd21_without_descriptors_the_accept_loop_waits"]
async fn child() {
    rlimit::setrlimit(rlimit::Resource::NOFILE, DESCRIPTORS, DESCRIPTORS).unwrap();
    // Without a reserve, so that `accept` itself fails.
    let server = start(ServerLimits { fd_reserve: 0, connections: u64::MAX, ..ServerLimits::default() });
    let mut out = std::io::stdout();
    writeln!(out, "\naddress {}", server.address).unwrap();
    out.flush().unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
}

#[test]
fn fd21_without_descriptors_the_accept_loop_waits() {
    let (child, address) = Server::start();
    // All connect: the kernel completes the handshakes. The server can accept some of them.
    let mut clients: Vec<_> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(300));
    let before = child.cpu_ticks();
    std::thread::sleep(Duration::from_secs(1));
    let spent = child.cpu_ticks() - before;
    assert!(spent <= 10, "{spent} of 100 ticks in a second: the loop spins");

    // With free descriptors the server continues.
    let last = clients.pop().unwrap();
    drop(clients);
    last.set_read_timeout(Some(Duration::from_secs(4))).unwrap();
    let mut last = last;
    last.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    std::io::Read::read_exact(&mut last, &mut [0; 9]).expect("the server's SETTINGS");
}

struct Server(Child);

impl Server {
    fn start() -> (Server, SocketAddr) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "exhaustion::child", "--nocapture"]);
        let mut child = Server(command.stdout(Stdio::piped()).spawn().unwrap());
        let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let address = lines.map(Result::unwrap).find_map(|line| line.strip_prefix("address ")?.parse().ok());
        (child, address.expect("the child says where it listens"))
    }

    /// User and system time in ticks of 10 ms (proc(5), fields 14 and 15).
    fn cpu_ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
