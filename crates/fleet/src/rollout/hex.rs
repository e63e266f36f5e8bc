//! 128 bits as 32 hexadecimal digits, in JSON.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

use sluice_xds::Version;

pub(in crate::rollout) fn serialize<S: Serializer>(bits: &u128, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Version(*bits))
}

pub(in crate::rollout) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
    let text = String::deserialize(deserializer)?;
    let error = || D::Error::custom(format_args!("{text:?} is not 32 hexadecimal digits"));
    Ok(Version::parse(&text).ok_or_else(error)?.0)
}
