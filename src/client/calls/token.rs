//! The expiry of a JSON Web Token. The relay verifies nothing: the server does.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

/// The longest value of an entry of call metadata, in bytes. A service account's token has 1 to 4 KiB; most
/// servers refuse header lists above 8 to 64 KiB.
pub const VALUE_BYTES_MAX: usize = 16 << 10;

/// The latest expiry: the year 9999. Larger numbers are no seconds.
const LATEST: u64 = 253_402_300_799;

/// A text is no token that can be sent. The reason names no part of the text (TLS-14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("longer than {VALUE_BYTES_MAX} bytes")]
    TooLong,
    #[error("not a JSON Web Token: expected three parts with dots between")]
    Parts,
    #[error("the claims of the token are not base64url")]
    Base64,
    #[error("the claims of the token are not a JSON object")]
    Json,
    #[error("the token has no expiry (claim `exp`)")]
    NoExpiry,
}

#[derive(Deserialize)]
struct Claims {
    exp: Option<serde_json::Number>,
}

/// The time at which a token expires (gRFC A97, IDN-9). Pure; accepts any text.
///
/// # Errors
/// The first reason why the text is no token with an expiry.
pub fn token_expiry(token: &str) -> Result<SystemTime, TokenError> {
    if token.len() > VALUE_BYTES_MAX {
        return Err(TokenError::TooLong);
    }
    let mut parts = token.split('.');
    let (Some(head), Some(claims), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(TokenError::Parts);
    };
    let is_part =
        |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'='));
    // A token without a signature proves nothing to a server, but is a valid token.
    if head.is_empty() || claims.is_empty() || !is_part(head) || !is_part(signature) {
        return Err(TokenError::Parts);
    }
    let claims = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).map_err(|_| TokenError::Base64)?;
    // The parser would also take a list of the fields in their order.
    if claims.trim_ascii_start().first() != Some(&b'{') {
        return Err(TokenError::Json);
    }
    let claims: Claims = serde_json::from_slice(&claims).map_err(|_| TokenError::Json)?;
    let seconds = claims.exp.and_then(|exp| whole_seconds(&exp)).ok_or(TokenError::NoExpiry)?;
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.min(LATEST)))
}

/// RFC 7519 allows fractions of seconds. They are cut off.
fn whole_seconds(number: &serde_json::Number) -> Option<u64> {
    number.as_u64().or_else(|| {
        let seconds = number.as_f64().filter(|seconds| seconds.is_finite() && *seconds >= 0.0)?;
        Some(seconds as u64)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn token(claims: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn idn_9_the_expiry_is_a_number_of_seconds() {
        let at = |seconds| Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        for (claims, expiry) in [
            (r#"{"exp":1700000000}"#, at(1_700_000_000)),
            (r#"{"sub":"a","exp":1700000000.75,"aud":["b"]}"#, at(1_700_000_000)),
            (r#"{"exp":0}"#, at(0)),
            (r#"{"exp":1e300}"#, at(LATEST)),
            (r#"{"exp":-1}"#, Err(TokenError::NoExpiry)),
            (r#"{"exp":null}"#, Err(TokenError::NoExpiry)),
            ("{}", Err(TokenError::NoExpiry)),
            (r#"{"exp":"1700000000"}"#, Err(TokenError::Json)),
            (r#"{"exp":1,"exp":2}"#, Err(TokenError::Json)),
            ("[]", Err(TokenError::Json)),
            // Found by the fuzz target `token_expiry`.
            ("[1700000000]", Err(TokenError::Json)),
            ("", Err(TokenError::Parts)),
        ] {
            assert_eq!(token_expiry(&token(claims)), expiry, "{claims}");
        }
    }

    #[test]
    fn idn_9_other_texts_are_no_tokens() {
        let padded = token(r#"{"exp":1}"#).replace(".c2ln", "=.c2ln");
        assert!(token_expiry(&padded).is_ok(), "some issuers pad");
        for (text, error) in [
            ("", TokenError::Parts),
            ("a.b", TokenError::Parts),
            ("a.b.c.d", TokenError::Parts),
            (".e30.c", TokenError::Parts),
            ("a\n.e30.c", TokenError::Parts),
            ("a.e30.c\r\nx-admin: true", TokenError::Parts),
            ("a.e+0.c", TokenError::Base64),
            ("a.é.c", TokenError::Base64),
            ("a.e3.c", TokenError::Base64),
            ("a.e30.c", TokenError::NoExpiry),
        ] {
            assert_eq!(token_expiry(text), Err(error), "{text:?}");
        }
        let long = "a".repeat(VALUE_BYTES_MAX + 1);
        assert_eq!(token_expiry(&long), Err(TokenError::TooLong));
    }
}
