//! Flow control (RFC 9113, section 5.2): the bytes that a peer may still send us, and that we may still send.

use thiserror::Error;

/// The initial window of a stream and of a connection.
pub const DEFAULT_WINDOW: u32 = 65_535;

/// The maximum window (RFC 9113, section 6.9.1).
const MAX_WINDOW: i64 = 0x7fff_ffff;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FlowError {
    #[error("the server sent more than the flow-control window allows")]
    Overrun,
    #[error("the server raised a flow-control window past 2^31-1 or by 0")]
    Increment,
}

/// A window that we grant. Received data is consumed at once; the credit goes back after half of the window
/// is used, as in Envoy's codec.
pub struct ReceiveWindow {
    size: u32,
    used: u32,
}

impl ReceiveWindow {
    pub fn new(size: u32) -> ReceiveWindow {
        ReceiveWindow { size, used: 0 }
    }

    /// Counts a DATA frame; returns the increment to send back, if due.
    pub fn receive(&mut self, length: u32) -> Result<Option<u32>, FlowError> {
        self.used = self.used.saturating_add(length);
        if self.used > self.size {
            return Err(FlowError::Overrun);
        }
        if self.used < self.size / 2 {
            return Ok(None);
        }
        Ok(Some(std::mem::take(&mut self.used)))
    }
}

/// A window that the peer grants. A changed SETTINGS_INITIAL_WINDOW_SIZE can make the window negative (RFC
/// 9113, section 6.9.2).
pub struct SendWindow(i64);

impl SendWindow {
    pub fn new() -> SendWindow {
        SendWindow(i64::from(DEFAULT_WINDOW))
    }

    pub fn available(&self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    pub fn send(&mut self, length: usize) {
        debug_assert!(length <= self.available());
        self.0 -= length as i64;
    }

    /// A WINDOW_UPDATE frame.
    pub fn grant(&mut self, increment: u32) -> Result<(), FlowError> {
        if increment == 0 {
            return Err(FlowError::Increment);
        }
        self.shift(i64::from(increment))
    }

    /// The difference between a new and the old SETTINGS_INITIAL_WINDOW_SIZE.
    pub fn shift(&mut self, difference: i64) -> Result<(), FlowError> {
        self.0 += difference;
        if self.0 > MAX_WINDOW { Err(FlowError::Increment) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_goes_back_at_half_of_the_window() {
        let mut window = ReceiveWindow::new(100);
        assert_eq!(window.receive(49), Ok(None));
        assert_eq!(window.receive(30), Ok(Some(79)));
        assert_eq!(window.receive(0), Ok(None));
        assert_eq!(window.receive(49), Ok(None));
        assert_eq!(window.receive(52), Err(FlowError::Overrun));
    }

    #[test]
    fn a_send_window_shrinks_grows_and_may_be_negative() {
        let mut window = SendWindow::new();
        window.send(65_535);
        assert_eq!(window.available(), 0);
        assert_eq!(window.shift(-1_000), Ok(()));
        assert_eq!(window.available(), 0);
        assert_eq!(window.grant(1_500), Ok(()));
        assert_eq!(window.available(), 500);
    }

    #[test]
    fn a_send_window_has_a_top() {
        assert_eq!(SendWindow::new().grant(0), Err(FlowError::Increment));
        assert_eq!(SendWindow::new().grant(0x7fff_ffff), Err(FlowError::Increment));
        assert_eq!(SendWindow::new().grant(0x7fff_ffff - 65_535), Ok(()));
    }
}
