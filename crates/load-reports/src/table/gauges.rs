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

/// The gauges that are not zero, by row: for each the distance from the row before, and two numbers. Seven
/// bits a byte, so a usual gauge takes three bytes.
#[derive(Clone, Debug, Default)]
pub struct StreamGauges(Box<[u8]>);

impl StreamGauges {
    /// Packs gauges in the order of their rows.
    pub fn pack(gauges: &[StreamGauge]) -> StreamGauges {
        let mut bytes = Vec::with_capacity(4 * gauges.len());
        let mut before = 0;
        for gauge in gauges {
            let distance = gauge.row.wrapping_sub(std::mem::replace(&mut before, gauge.row));
            for mut number in [distance, gauge.in_progress, gauge.active_connections] {
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
            let (mut number, mut shift) = (0u32, 0);
            loop {
                let byte = *bytes.next()?;
                number |= u32::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return Some(number);
                }
            }
        };
        let mut row = 0u32;
        std::iter::from_fn(move || {
            row = row.wrapping_add(number()?);
            Some(StreamGauge { row, in_progress: number()?, active_connections: number()? })
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
        assert_eq!(StreamGauges::pack(&gauges[..2]).bytes(), 3 * 2 + 8);
        assert_eq!(StreamGauges::default().iter().count(), 0);
    }
}
