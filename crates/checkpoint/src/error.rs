//! Why a file is ignored.

/// Increased by every change that an older build would misread.
pub(super) const FORMAT: u32 = 1;

/// The reason why a file is ignored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("not a checkpoint file")]
    Foreign,
    #[error("format {0} is not supported; this build reads format {FORMAT}")]
    Format(u32),
    #[error("damaged{}", .record.map(|record| format!(": the first error is in record {record}")).unwrap_or_default())]
    Damaged { record: Option<u64> },
    #[error("written by a build with another computation of versions")]
    Versions,
}
