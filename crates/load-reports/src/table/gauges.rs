//! The gauges of a stream, packed: a class has up to millions.

use crate::counters::Gauges;

/// The gauges of a stream in a row, of 32 bits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamGauge {
    pub row: u32,
    pub in_progress: u32,
    pub active_connections: u32,
}

impl StreamGauge {
    /// Adds gauges of the same row; false, and nothing is added, if the sum has no room.
    pub fn take_in(&mut self, more: &StreamGauge) -> bool {
        let in_progress = self.in_progress.checked_add(more.in_progress);
        let sums = in_progress.zip(self.active_connections.checked_add(more.active_connections));
        let Some((in_progress, active_connections)) = sums else { return false };
        (self.in_progress, self.active_connections) = (in_progress, active_connections);
        true
    }

    pub fn gauges(&self) -> Gauges {
        let (in_progress, active) = (self.in_progress, self.active_connections);
        Gauges { in_progress: u64::from(in_progress), active_connections: u64::from(active) }
    }
}

/// The gauges that are not zero, by row: for each the distance from the row before, and one or two numbers.
/// Seven bits a byte, so a usual gauge takes two bytes.
#[derive(Clone, Debug, Default)]
pub struct StreamGauges(Box<[u8]>);

impl StreamGauges {
    /// Packs gauges in the order of their rows.
    pub fn pack(gauges: &[StreamGauge]) -> StreamGauges {
        let mut bytes = Vec::with_capacity(4 * gauges.len());
        let mut before = 0;
        for gauge in gauges {
            let distance = gauge.row.wrapping_sub(std::mem::replace(&mut before, gauge.row));
            // Few reporters count their connections.
            let has_active = gauge.active_connections != 0;
            let head = u64::from(distance) << 1 | u64::from(has_active);
            let active = has_active.then_some(u64::from(gauge.active_connections));
            for mut number in [head, gauge.in_progress.into()].into_iter().chain(active) {
                while number >= 0x80 {
                    bytes.push(number as u8 | 0x80);
                    number >>= 7;
                }
                bytes.push(number as u8);
            }
        }
        StreamGauges(bytes.into_boxed_slice())
    }

    pub fn iter(&self) -> impl Iterator<Item = StreamGauge> {
        let mut bytes = self.0.iter();
        let mut number = move || {
            let (mut number, mut shift) = (0u64, 0);
            loop {
                let byte = *bytes.next()?;
                number |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return Some(number);
                }
            }
        };
        let mut row = 0u32;
        std::iter::from_fn(move || {
            let head = number()?;
            row = row.wrapping_add((head >> 1) as u32);
            let in_progress = number()? as u32;
            let active_connections = if head & 1 == 1 { number()? as u32 } else { 0 };
            Some(StreamGauge { row, in_progress, active_connections })
        })
    }

    /// The memory.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_gauges_are_the_same_afterwards() {
        let numbers = [0, 1, 127, 128, 300, u32::MAX - 1, u32::MAX];
        let gauges: Vec<StreamGauge> = numbers
            .iter()
            .zip(numbers.iter().rev())
            .map(|(row, active)| StreamGauge { row: *row, in_progress: *row, active_connections: *active })
            .collect();
        let packed = StreamGauges::pack(&gauges);
        assert_eq!(packed.iter().collect::<Vec<_>>(), gauges);
        assert_eq!(StreamGauges::pack(&gauges[..2]).bytes(), 2 + 2 * 5 + 2);
        let usual = StreamGauge { row: 1, in_progress: 3, active_connections: 0 };
        assert_eq!(StreamGauges::pack(&[usual]).bytes(), 2);
        assert_eq!(StreamGauges::default().iter().count(), 0);
    }
}
