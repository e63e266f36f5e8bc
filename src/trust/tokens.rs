//! Tokens of callers, from files (AUT-14).
//!
//! Only digests are kept, so no dump of memory shows a token. Two digests are compared in constant time.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use blake3::Hash;

use super::contents::{Contents, PlaceFile};
use super::fault::Fault;
use super::rotation::{self, Expiry};

/// The shortest token: 32 random bytes cannot be guessed, not even as half as many in hexadecimal.
pub const TOKEN_BYTES_MIN: usize = 32;

/// The longest token. The admin listener reads 16 KiB of headers.
pub const TOKEN_BYTES_MAX: usize = 4 << 10;

/// Tokens in one file. A rotation needs two for a while.
const TOKENS_MAX: usize = 16;

/// The file with the tokens of one caller, one a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFile {
    /// The name of the caller in logs.
    pub name: Box<str>,
    pub path: PathBuf,
}

/// The tokens of all callers, in force together.
#[derive(Debug, PartialEq, Eq)]
pub struct Tokens(Vec<TokenOwner>);

#[derive(Debug, PartialEq, Eq)]
struct TokenOwner {
    name: Box<str>,
    digests: Vec<Hash>,
}

/// All files of a place with their keys.
pub fn place_files(files: &[TokenFile]) -> Vec<PlaceFile> {
    let keyed = |(index, file): (usize, &TokenFile)| PlaceFile::new(key(index), &file.path);
    files.iter().enumerate().map(keyed).collect()
}

fn key(index: usize) -> String {
    format!("tokens[{index}].token_file")
}

impl Tokens {
    /// Reads the tokens from the contents of all files.
    ///
    /// # Errors
    /// The first file that cannot be used. The text has no part of a token (TLS-14).
    pub fn read(files: &[TokenFile], contents: &Contents) -> Result<Tokens, Fault> {
        let read = |(index, file): (usize, &TokenFile)| {
            let digests = digests(&file.path, contents.of(&file.path));
            let digests = digests.map_err(|fault| fault.at(key(index)))?;
            Ok(TokenOwner { name: file.name.clone(), digests })
        };
        files.iter().enumerate().map(read).collect::<Result<_, Fault>>().map(Tokens)
    }

    /// The callers with this token.
    pub fn owners(&self, presented: &[u8]) -> impl Iterator<Item = &str> {
        let presented = blake3::hash(presented);
        self.0.iter().filter(move |caller| caller.has(&presented)).map(|caller| &*caller.name)
    }
}

impl TokenOwner {
    /// Compares with every token, each in constant time: neither the number of equal bytes nor the place of
    /// the token shows in the time.
    fn has(&self, presented: &Hash) -> bool {
        self.digests.iter().fold(false, |is_equal, digest| is_equal | (digest == presented))
    }
}

impl rotation::FilesInForce for Tokens {
    const FILES: &'static str = "token files";

    fn expiries(&self, _: SystemTime) -> Vec<Expiry> {
        Vec::new()
    }

    fn remarks(&self, _: SystemTime) -> Vec<String> {
        Vec::new()
    }

    fn judges_like(&self, other: &Tokens) -> bool {
        self == other
    }
}

/// The digests of the tokens in a file. Its writer may be at work, so each fault may pass.
fn digests(path: &Path, content: &[u8]) -> Result<Vec<Hash>, Fault> {
    let mut digests = Vec::new();
    for (number, line) in content.split(|byte| *byte == b'\n').enumerate() {
        let token = line.trim_ascii();
        if token.is_empty() {
            continue;
        }
        let fault = |reason: &str| Fault::passing(path, format!("line {}: {reason}", number + 1));
        if !token.iter().all(u8::is_ascii_graphic) {
            return Err(fault("a character that no token has; expected one token a line, without comments"));
        }
        if token.len() < TOKEN_BYTES_MIN {
            let reason = format!("the token has {} bytes; expected at least {TOKEN_BYTES_MIN}", token.len());
            return Err(fault(&reason));
        }
        if token.len() > TOKEN_BYTES_MAX {
            return Err(fault(&format!("the token is longer than {TOKEN_BYTES_MAX} bytes")));
        }
        if digests.len() == TOKENS_MAX {
            return Err(fault(&format!("expected at most {TOKENS_MAX} tokens in a file")));
        }
        digests.push(blake3::hash(token));
    }
    if digests.is_empty() {
        return Err(Fault::passing(path, "no token in the file"));
    }
    Ok(digests)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const OLD: &str = "old-0123456789abcdef0123456789abcdef";
    const NEW: &str = "new-0123456789abcdef0123456789abcdef";

    fn read(texts: &[&str]) -> Result<Tokens, Fault> {
        let directory = tempfile::tempdir().unwrap();
        let files: Vec<TokenFile> = (0..texts.len())
            .map(|number| TokenFile {
                name: format!("caller-{number}").into(),
                path: directory.path().join(number.to_string()),
            })
            .collect();
        for (file, text) in files.iter().zip(texts) {
            std::fs::write(&file.path, text).unwrap();
        }
        Tokens::read(&files, &Contents::read(&place_files(&files)).unwrap().0)
    }

    #[test]
    fn aut_14_each_line_of_a_file_is_a_token_of_its_caller() {
        let tokens = read(&[&format!("{OLD}\n\n  {NEW}\r\n"), NEW]).unwrap();
        let owners = |token: &str| tokens.owners(token.as_bytes()).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(owners(OLD), ["caller-0"]);
        assert_eq!(owners(NEW), ["caller-0", "caller-1"]);
        let longer = format!("{OLD}0");
        for wrong in ["", &OLD[..OLD.len() - 1], &longer, &OLD.to_uppercase(), &format!("{OLD}\n\n  {NEW}")] {
            assert_eq!(owners(wrong), Vec::<String>::new(), "{wrong:?}");
        }
        assert!(!format!("{tokens:?}").contains("0123456789abcdef0123456789abcdef"));
    }

    #[test]
    fn aut_14_a_bad_file_is_refused_without_its_content() {
        let good = OLD;
        let (short, long) = ("s3cr3t-s3cr3t", "s3cr3t".repeat(TOKEN_BYTES_MAX));
        let many = format!("{OLD}\n").repeat(TOKENS_MAX + 1);
        for (text, reason) in [
            ("", "no token in the file"),
            ("\n \n", "no token in the file"),
            (&*format!("{OLD}\n{short}"), "line 2: the token has 13 bytes; expected at least 32"),
            ("# s3cr3t s3cr3t s3cr3t s3cr3t s3cr3t s3cr3t", "line 1: a character that no token has"),
            (&*long, "line 1: the token is longer than 4096 bytes"),
            (&*many, "line 17: expected at most 16 tokens in a file"),
        ] {
            let fault = read(&[good, text]).unwrap_err();
            assert!(fault.reason.starts_with(reason) && fault.may_pass, "{fault:?}");
            assert_eq!(fault.key, "tokens[1].token_file");
            assert!(!fault.to_string().contains("s3cr3t"), "{fault}");
        }
    }
}
