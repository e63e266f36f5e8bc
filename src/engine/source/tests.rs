//! Transcripts of a source.
