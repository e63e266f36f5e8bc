//! The sources of a client's content: the sources that a part of a subscription is asked of.

/// A source, by the driver's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u64);

/// A change of the content of a source, by its number in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeId {
    pub source: SourceId,
    pub number: u64,
}

/// A server list, as the configuration describes the list: another list, or other servers, have another id
/// (ADR 21). The router makes the ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListId(pub u64);

/// The sources that a part is asked of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The server list.
    pub list: ListId,
    /// The serving source.
    pub source: SourceId,
    /// The sources of the other servers that are asked too (FBK-5, FBK-11); `None` if there are no others.
    pub others: Option<Box<Others>>,
}

/// Sources by the position of their servers in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others(pub(super) Vec<(u16, SourceId)>);

impl Asked {
    pub fn sources(&self) -> impl Iterator<Item = SourceId> {
        std::iter::once(self.source).chain(self.others().map(|(_, source)| source))
    }

    /// The position of the serving source's server in the list: the one that the others leave out.
    pub fn serving(&self) -> u16 {
        let mut serving = 0;
        for (server, _) in self.others() {
            if server != serving {
                break;
            }
            serving += 1;
        }
        serving
    }

    /// The other sources, in the order of preference.
    pub fn others(&self) -> impl DoubleEndedIterator<Item = (u16, SourceId)> {
        self.others.iter().flat_map(|others| &others.0).copied()
    }
}
