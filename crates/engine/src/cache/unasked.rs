//! Unasked names (DEL-17), in the order of arrival.

use imbl::OrdMap;

use sluice_xds::ResourceName;

/// The unasked names of one type at one source. Each session of the source adopts the names that are new to
/// the session. Cloning is cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnaskedNames {
    names: OrdMap<u64, ResourceName>,
    numbers: OrdMap<ResourceName, u64>,
}

impl UnaskedNames {
    /// `number`: greater than all earlier numbers of the source.
    pub fn add(&mut self, name: ResourceName, number: u64) {
        if let Some(before) = self.numbers.insert(name.clone(), number) {
            self.names.remove(&before);
        }
        self.names.insert(number, name);
    }

    pub fn remove(&mut self, name: &ResourceName) {
        if let Some(number) = self.numbers.remove(name) {
            self.names.remove(&number);
        }
    }

    /// The number of the latest arrival; 0 without names.
    pub fn latest(&self) -> u64 {
        self.names.get_max().map_or(0, |(number, _)| *number)
    }

    /// The names that arrived after this number.
    pub fn after(&self, number: u64) -> impl Iterator<Item = &ResourceName> {
        self.names.range(number + 1..).map(|(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn del_17_a_name_that_comes_again_is_new_again() {
        let mut names = UnaskedNames::default();
        names.add("a".into(), 1);
        names.add("b".into(), 2);
        names.add("a".into(), 3);
        let after = |names: &UnaskedNames, number| names.after(number).cloned().collect::<Vec<_>>();
        assert_eq!(after(&names, 0), ["b".into(), "a".into()]);
        assert_eq!((after(&names, 2), names.latest()), (vec!["a".into()], 3));
        names.remove(&"a".into());
        assert_eq!((after(&names, 0), names.latest()), (vec!["b".into()], 2));
    }
}
