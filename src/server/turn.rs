//! The turns of connections: a connection that reads without an end leaves time for others (FD19).

/// The work of a connection before others have their turn, in frames of the smallest kind: some half a
/// millisecond. The runtime looks for new events after 61 turns, so a few connections that flood would
/// otherwise hold up all updates for hundreds of milliseconds.
///
/// A client that repeats its node sends each request in four frames and fifteen reads, and has room for four
/// of them.
pub(super) const TURN_WORK: u32 = 2048;

/// The work of one read beside its frames and bytes: a system call, or a record of TLS.
pub(super) const READ_WORK: u32 = 16;

/// Bytes that are as much work as a frame.
pub(super) const BYTES_OF_WORK: usize = 256;

/// The work of a connection in its present turn.
#[derive(Debug, Default)]
pub(super) struct ConnectionTurn(u32);

impl ConnectionTurn {
    pub(super) fn is_over(&self) -> bool {
        self.0 >= TURN_WORK
    }

    /// Counts frames as they begin.
    pub(super) fn frames(&mut self) -> &mut u32 {
        &mut self.0
    }

    /// Adds a read of so many bytes, without its frames.
    pub(super) fn add_read(&mut self, bytes: usize) {
        let of_bytes = u32::try_from(bytes / BYTES_OF_WORK).unwrap_or(TURN_WORK);
        self.0 = self.0.saturating_add(READ_WORK + of_bytes);
    }

    pub(super) fn end(&mut self) {
        self.0 = 0;
    }
}
