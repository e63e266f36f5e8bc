//! The facts of all Pods, each content once: the Pods of a workload have mostly the same.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_engine::class::facts::Fields;
use sluice_xds::Value;

/// A key and a value with their allocations and their share of a map.
const BYTES_OF_FIELD: usize = 120;

/// Contents with the number of their users.
#[derive(Debug, Default)]
pub(super) struct FactContents {
    users: HashMap<Arc<Fields>, usize>,
    /// By [`cost`].
    bytes: usize,
}

impl FactContents {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn has(&self, fields: &Fields) -> bool {
        self.users.contains_key(fields)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Returns a content for one more user.
    pub fn keep(&mut self, fields: Fields) -> Arc<Fields> {
        if let Some((content, _)) = self.users.get_key_value(&fields) {
            let content = content.clone();
            *self.users.entry(content.clone()).or_default() += 1;
            return content;
        }
        self.bytes += cost(&fields);
        let fields = Arc::new(fields);
        self.users.insert(fields.clone(), 1);
        fields
    }

    /// Removes one user of a content.
    pub fn leave(&mut self, fields: &Arc<Fields>) {
        let Some(users) = self.users.get_mut(fields) else { return };
        *users -= 1;
        if *users == 0 {
            self.users.remove(fields);
            self.bytes -= cost(fields);
        }
    }
}

/// The bytes of a content in memory, roughly.
pub(super) fn cost(fields: &Fields) -> usize {
    let of_value = |value: &Value| match value {
        Value::String(text) => text.len(),
        Value::Struct(fields) => cost(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) => 0,
    };
    fields.iter().map(|(key, value)| BYTES_OF_FIELD + key.len() + of_value(value)).sum()
}
