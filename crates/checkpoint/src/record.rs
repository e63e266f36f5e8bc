//! Records: a kind, a length, a payload, and a checksum of these and of the record's position.

use std::io;

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

/// Bytes of a record's checksum.
pub const CHECK_BYTES: usize = 8;

/// Bytes before the payload.
pub const HEAD_BYTES: usize = 5;

/// The writer emits pieces of about this many bytes.
const PIECE_BYTES: usize = 256 << 10;

/// The checksum includes the record's position, so that swapped records are detected.
pub fn check(place: u64, head_and_payload: &[u8]) -> [u8; CHECK_BYTES] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&place.to_le_bytes());
    hasher.update(head_and_payload);
    let mut check = [0; CHECK_BYTES];
    hasher.finalize_xof().fill(&mut check);
    check
}

/// The destination of the pieces of a file.
pub type Sink<'a> = dyn FnMut(&[u8]) -> io::Result<()> + 'a;

/// Writes a file record by record.
pub struct Writer<'a> {
    sink: &'a mut Sink<'a>,
    piece: Vec<u8>,
    /// The checksum of the whole file so far.
    whole: blake3::Hasher,
    records: u64,
    bytes: u64,
}

impl<'a> Writer<'a> {
    pub fn new(sink: &'a mut Sink<'a>, start: &[u8]) -> Writer<'a> {
        let mut whole = blake3::Hasher::new();
        whole.update(start);
        Writer { sink, piece: start.to_vec(), whole, records: 0, bytes: start.len() as u64 }
    }

    pub fn record(&mut self, kind: u8, write: impl FnOnce(&mut Payload<'_>)) -> io::Result<()> {
        let start = self.piece.len();
        self.piece.extend([kind, 0, 0, 0, 0]);
        write(&mut Payload(&mut self.piece));
        let length = self.piece.len() - start - HEAD_BYTES;
        let length = u32::try_from(length)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a resource of more than 4 GiB"))?;
        if let Some(place) = self.piece.get_mut(start + 1..start + HEAD_BYTES) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        let check = check(self.records, self.piece.get(start..).unwrap_or_default());
        self.piece.extend(check);
        self.whole.update(self.piece.get(start..).unwrap_or_default());
        self.bytes += (self.piece.len() - start) as u64;
        self.records += 1;
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        (self.sink)(&self.piece)?;
        self.piece.clear();
        Ok(())
    }

    pub fn records(&self) -> u64 {
        self.records
    }

    /// Ends the file with the checksum of the whole. Returns the file's size in bytes.
    pub fn finish(mut self) -> io::Result<u64> {
        let whole = self.whole.finalize();
        self.piece.extend(whole.as_bytes());
        self.flush()?;
        Ok(self.bytes + whole.as_bytes().len() as u64)
    }
}

/// The payload of a record being written.
pub struct Payload<'a>(&'a mut Vec<u8>);

impl Payload<'_> {
    pub fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// Writes the length, then the bytes. No part is longer than the whole record, and the record's length is
    /// checked.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.0.extend(bytes);
    }

    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.0.push(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }
}

/// Reads the records of a file one by one.
pub struct Reader<'a> {
    rest: &'a [u8],
    records: u64,
}

impl<'a> Reader<'a> {
    pub fn new(records: &'a [u8]) -> Reader<'a> {
        Reader { rest: records, records: 0 }
    }

    /// The number of records read so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    fn damaged(&self) -> FormatError {
        FormatError::Damaged { record: Some(self.records) }
    }

    /// The next record: kind and payload. `verify`: compare the checksum, too.
    pub fn next(&mut self, verify: bool) -> Option<Result<(u8, Fields<'a>), FormatError>> {
        if self.rest.is_empty() {
            return None;
        }
        Some(self.take(verify))
    }

    fn take(&mut self, verify: bool) -> Result<(u8, Fields<'a>), FormatError> {
        let (head, _) = self.rest.split_at_checked(HEAD_BYTES).ok_or_else(|| self.damaged())?;
        let [kind, length @ ..] = head else { return Err(self.damaged()) };
        let length: [u8; 4] = length.try_into().map_err(|_| self.damaged())?;
        let length = usize::try_from(u32::from_le_bytes(length)).map_err(|_| self.damaged())?;
        let split = self.rest.split_at_checked(HEAD_BYTES + length);
        let (record, rest) = split.ok_or_else(|| self.damaged())?;
        let (check_bytes, rest) = rest.split_at_checked(CHECK_BYTES).ok_or_else(|| self.damaged())?;
        if verify && check_bytes != check(self.records, record) {
            return Err(self.damaged());
        }
        let payload = record.get(HEAD_BYTES..).unwrap_or_default();
        let fields = Fields { rest: payload, record: self.records };
        self.rest = rest;
        self.records += 1;
        Ok((*kind, fields))
    }
}

/// The payload of a record being read.
pub struct Fields<'a> {
    rest: &'a [u8],
    record: u64,
}

impl<'a> Fields<'a> {
    pub fn malformed(&self) -> FormatError {
        FormatError::Damaged { record: Some(self.record) }
    }

    pub fn raw(&mut self, length: usize) -> Result<&'a [u8], FormatError> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or_else(|| self.malformed())?;
        self.rest = rest;
        Ok(bytes)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        self.raw(N)?.try_into().map_err(|_| self.malformed())
    }

    pub fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], FormatError> {
        let length = u32::from_le_bytes(self.array()?);
        self.raw(usize::try_from(length).map_err(|_| self.malformed())?)
    }

    pub fn text(&mut self) -> Result<&'a str, FormatError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| self.malformed())
    }

    pub fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, FormatError>,
    ) -> Result<Option<T>, FormatError> {
        match self.array()? {
            [0] => Ok(None),
            [1] => read(self).map(Some),
            _ => Err(self.malformed()),
        }
    }

    pub fn count(&mut self) -> Result<usize, FormatError> {
        usize::try_from(self.u64()?).map_err(|_| self.malformed())
    }

    /// Checks that the whole payload was read.
    pub fn end(&self) -> Result<(), FormatError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.malformed()) }
    }
}
