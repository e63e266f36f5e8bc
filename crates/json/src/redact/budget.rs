//! The cost of a message, before it is decoded: a field takes two bytes on the wire, but many in memory.

use prost_reflect::{Kind, MessageDescriptor};

use super::{Budget, DEPTH_MAX, Refusal};
use sluice_wire::fields::{Fields, Payload};

impl Budget {
    /// Takes the fields and elements of a message from the budget, without those of an `Any`.
    pub(super) fn charge(&mut self, descriptor: &MessageDescriptor, body: &[u8]) -> Result<(), Refusal> {
        self.charge_at(descriptor, body, 0)
    }

    fn take(&mut self, fields: usize) -> Result<(), Refusal> {
        self.0 = self.0.checked_sub(fields).ok_or(Refusal::TooLarge)?;
        Ok(())
    }

    fn charge_at(
        &mut self,
        descriptor: &MessageDescriptor,
        body: &[u8],
        depth: usize,
    ) -> Result<(), Refusal> {
        if depth > DEPTH_MAX {
            return Err(Refusal::TooDeep);
        }
        for field in Fields::of(body) {
            let (number, payload) = field.map_err(|_| Refusal::Malformed)?;
            self.take(1)?;
            let (Payload::Bytes(bytes), Some(field)) = (payload, descriptor.get_field(number)) else {
                continue;
            };
            match field.kind() {
                Kind::Message(inner) => self.charge_at(&inner, bytes, depth + 1)?,
                Kind::String | Kind::Bytes => {}
                // Packed numbers: at least one byte each.
                _ => self.take(bytes.len())?,
            }
        }
        Ok(())
    }
}
