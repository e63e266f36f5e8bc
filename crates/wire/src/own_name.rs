//! The name that the body of a resource states (WIR-9).

use super::fields::{Fields, Malformed, Payload};
use sluice_xds::{Kind, ResourceName};

/// The first field of a body, where every type with a name has it (TYP-2). Reads all fields, and finds what
/// is malformed.
#[derive(Clone, Copy, Default)]
pub struct OwnName<'a>(Option<Payload<'a>>);

impl<'a> OwnName<'a> {
    pub fn of(body: &'a [u8]) -> Result<OwnName<'a>, Malformed> {
        let mut name = None;
        for field in Fields::of(body) {
            if let (1, payload) = field? {
                name = Some(payload);
            }
        }
        Ok(OwnName(name))
    }

    /// The first field, of which the reader of a message has found nothing malformed.
    pub(super) fn in_field(payload: Payload<'a>) -> OwnName<'a> {
        OwnName(Some(payload))
    }

    /// The name. In a type unknown to sluice, field 1 may be something else than a name, as in istiod's name
    /// table. For such types an unreadable name counts as empty. So does a name with control characters: they
    /// are the beginning of an embedded message.
    pub fn text(self, kind: Kind) -> Result<&'a str, Malformed> {
        match self.0.map_or(Ok(""), Payload::text) {
            Ok(name) if kind == Kind::Other && name.contains(|c: char| c.is_control()) => Ok(""),
            Err(_) if kind == Kind::Other => Ok(""),
            read => read,
        }
    }

    /// Whether this is the name of the resource, in some spelling, so that the body needs no wrapper. `name`
    /// is without constraints, which no body states (DYN-1). A nameless resource has a type unknown to
    /// sluice: whatever its first field is, it is no name, and a wrapper would add none.
    pub fn is(self, name: &str, kind: Kind) -> bool {
        if name.is_empty() {
            return kind == Kind::Other;
        }
        let is_same = |stated| ResourceName::received(stated) == ResourceName::received(name);
        self.text(kind).is_ok_and(|stated| stated == name || is_same(stated))
    }
}
