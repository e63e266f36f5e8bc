//! The socket of a connection, plain or below TLS, without blocking.

use std::io::{self, ErrorKind, Read, Write};

use mio::net::TcpStream;
use rustls::ClientConnection;

pub enum Link {
    Plain(TcpStream),
    Tls(Box<Secure>),
}

pub struct Secure {
    socket: TcpStream,
    session: ClientConnection,
}

impl Link {
    pub fn tls(socket: TcpStream, session: ClientConnection) -> Link {
        Link::Tls(Box::new(Secure { socket, session }))
    }

    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Link::Plain(socket) => socket.take_error(),
            Link::Tls(secure) => secure.socket.take_error(),
        }
    }

    /// Whether a read that does not fill the buffer has emptied the socket (epoll(7), question 9). TLS returns a record
    /// at a time.
    pub fn short_read_empties(&self) -> bool {
        matches!(self, Link::Plain(_))
    }
}

impl Secure {
    /// Writes ciphertext until none is left or the socket is full.
    fn push(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(_) => {}
                // Until the connection is established a write fails as a blocked write does.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // A server that closes without close_notify has closed all the same.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            let bytes = self.session.read_tls(&mut self.socket)?;
            let processed = self.session.process_new_packets();
            if let Err(error) = processed {
                // The alert for the server.
                let _ = self.push();
                return Err(io::Error::other(error));
            }
            if bytes == 0 {
                return Ok(0);
            }
        }
    }
}

impl Read for Link {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Link::Plain(socket) => socket.read(buffer),
            Link::Tls(secure) => secure.read(buffer),
        }
    }
}

impl Write for Link {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Link::Plain(socket) => socket.write(bytes),
            Link::Tls(secure) => {
                let mut written = secure.session.writer().write(bytes)?;
                if written == 0 {
                    secure.push()?;
                    written = secure.session.writer().write(bytes)?;
                }
                if written == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(written) }
            }
        }
    }

    /// Ciphertext that the socket does not take stays for the next flush.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Link::Plain(_) => Ok(()),
            Link::Tls(secure) => secure.push(),
        }
    }
}
