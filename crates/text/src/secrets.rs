//! Secrets, by the name of a value and by the shape of a text: one table for all that is shown (ADM-12,
//! REL-9).

use std::ops::Range;

/// The end of the last word of names of secrets: headers, keys of structures, fields of messages,
/// parameters. A short one is the whole last word.
const WORDS: [&str; 16] = [
    "authorization",
    "cookie",
    "token",
    "password",
    "passwd",
    "pwd",
    "psk",
    "passphrase",
    "passcode",
    "secret",
    "credential",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "assertion",
];

/// As `WORDS`, but only after a hyphen: `x-api-key`. A plain `key` is nearly never one.
const WORDS_BEHIND_HYPHEN: [&str; 1] = ["key"];

/// Ends of names of more than a word.
const ENDS: [&str; 2] = ["access-key-id", "accesskeyid"];

/// Further last words of parameters in texts: of signed addresses, and of connection strings.
const PARAMETER_WORDS: [&str; 3] = ["sig", "signature", "pass"];

/// Names of secrets in prose: the next word is hidden whatever it looks like.
const PASSWORDS: [&str; 4] = ["password", "passwd", "passphrase", "pwd"];

/// Schemes of the header `Authorization`, before what they prove.
const SCHEMES: [&str; 4] = ["bearer", "basic", "apikey", "token"];

/// Beginnings of secrets that their issuers mark, and the least number of letters and digits behind: key ids
/// of AWS, tokens of GitHub, GitLab, Slack, Stripe, npm, PyPI, Docker, Vault and SendGrid, keys of Google and
/// OpenAI.
const MARKED: [(&str, usize); 32] = [
    ("AKIA", 16),
    ("ASIA", 16),
    ("ABIA", 16),
    ("ACCA", 16),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("xoxa-", 10),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("xoxr-", 10),
    ("xoxs-", 10),
    ("xapp-", 10),
    ("sk_live_", 16),
    ("rk_live_", 16),
    ("sk_test_", 16),
    ("rk_test_", 16),
    ("whsec_", 16),
    ("npm_", 30),
    ("pypi-", 30),
    ("dckr_pat_", 20),
    ("glrt-", 16),
    ("ya29.", 20),
    ("hvs.", 20),
    ("hvb.", 20),
    ("SG.", 20),
    ("AIza", 30),
    ("sk-", 32),
];

/// Beginnings of addresses whose rest is a secret.
const HOOKS: [&str; 3] = ["hooks.slack.com/services/", "discord.com/api/webhooks/", "api.telegram.org/bot"];

/// Behind the credentials in the addresses of databases by drivers of Go.
const DSN: [&str; 3] = ["@tcp(", "@udp(", "@unix("];

/// The beginning of each JWT: `{"` in base64.
const JWT: &str = "eyJ";

/// The least length of a part of a JWT, and of what a scheme proves.
const PART_MIN: usize = 6;

const PEM: [&str; 2] = ["-----BEGIN ", "-----END "];

/// The ends of the first lines of private keys.
const PRIVATE: [&str; 2] = ["PRIVATE KEY-----", "PRIVATE KEY BLOCK-----"];

/// The text in place of a hidden one.
pub fn hidden(bytes: usize) -> String {
    format!("[redacted {bytes} B]")
}

/// Whether a text is one that [`hidden`] made.
pub fn is_hidden(text: &str) -> bool {
    let size = text.strip_prefix("[redacted ").and_then(|rest| rest.strip_suffix(" B]"));
    size.is_some_and(|size| size.len() <= 20 && size.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether the name of a header, of a key in a structure, of an entry of a map, or of a parameter promises a
/// secret.
pub fn is_name(name: &str) -> bool {
    let name = words(name);
    // The number and the version of a secret: `token2`, `password_v2`.
    let name = name.trim_end_matches(|char: char| char.is_ascii_digit());
    let name = name.strip_suffix("-v").unwrap_or(name).trim_end_matches('-');
    let last = name.rsplit('-').next().unwrap_or_default();
    let one = last.strip_suffix('s').unwrap_or(last);
    let is_word = |word: &&str| {
        let is_end = word.len() > 3 && one.ends_with(*word);
        is_end || *word == last || *word == one
    };
    WORDS.iter().any(is_word)
        || (last.len() < name.len() && WORDS_BEHIND_HYPHEN.contains(&one))
        || ENDS.iter().any(|end| name.ends_with(end))
}

/// Whether an opaque text has a secret's name anywhere.
pub fn are_mentioned(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    WORDS.iter().chain(&["key"]).any(|word| text.contains(word))
}

/// Hides the secrets that have a known form: user information in an address, the value of a parameter with
/// the name of a secret, credentials behind the name of a scheme, private keys, and tokens with the mark of
/// an issuer. `None` for a text without secrets.
pub fn hide(text: &str) -> Option<String> {
    let mut ranges = Vec::new();
    user_information(text, &mut ranges);
    addresses(text, &mut ranges);
    parameters(text, &mut ranges);
    proofs(text, &mut ranges);
    private_keys(text, &mut ranges);
    ranges.sort_unstable_by_key(|range| (range.start, usize::MAX - range.end));
    let (mut shown, mut end) = (String::new(), 0);
    for range in ranges {
        if range.start >= end && !range.is_empty() && !text[range.start..].starts_with("[redacted ") {
            shown.push_str(&text[end..range.start]);
            shown.push_str(&hidden(range.len()));
            end = range.end;
        }
    }
    (end > 0).then(|| shown + &text[end..])
}

/// `apiKey`, `API_KEY` and `api.key` as `api-key`.
fn words(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 4);
    let mut was_lower = false;
    for char in name.chars() {
        if char.is_ascii_uppercase() && was_lower {
            words.push('-');
        }
        was_lower = char.is_ascii_lowercase() || char.is_ascii_digit();
        words.push(if matches!(char, '_' | '.' | ' ' | '/' | ':') { '-' } else { char.to_ascii_lowercase() });
    }
    words
}

/// `https://user:password@host`.
fn user_information(text: &str, ranges: &mut Vec<Range<usize>>) {
    for (at, scheme) in text.match_indices("://") {
        let start = at + scheme.len();
        let is_end =
            |char: char| char.is_whitespace() || matches!(char, '/' | '?' | '#' | '"' | '\'' | '<' | '>');
        let authority = text[start..].split(is_end).next().unwrap_or_default();
        let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
        let in_path = || {
            // A password with a slash: the part behind the colon is no port.
            authority.rsplit_once(':').filter(|(host, port)| !is_port(port) && !host.ends_with(']'))?;
            let word = text[start..].split(char::is_whitespace).next().unwrap_or_default();
            word.rfind('@')
        };
        ranges.extend(authority.rfind('@').or_else(in_path).map(|length| start..start + length));
    }
}

/// Addresses for posts to a chat, and `user:password@tcp(host)`.
fn addresses(text: &str, ranges: &mut Vec<Range<usize>>) {
    let is_end = |char: char| char.is_whitespace() || matches!(char, '"' | '\'' | '<' | '>' | '?');
    for (at, hook) in HOOKS.into_iter().flat_map(|hook| text.match_indices(hook)) {
        let start = at + hook.len();
        ranges.push(start..start + text[start..].split(is_end).next().unwrap_or_default().len());
    }
    for (at, _) in DSN.into_iter().flat_map(|dsn| text.match_indices(dsn)) {
        let credentials = text[..at].rsplit(is_end).next().unwrap_or_default();
        ranges.extend(credentials.contains(':').then(|| at - credentials.len()..at));
    }
}

/// `client_secret=…` in queries, forms and connection strings, `"client_secret": "…"` in JSON, also within a
/// text of JSON, and `X-Api-Key: …` in lines of headers.
fn parameters(text: &str, ranges: &mut Vec<Range<usize>>) {
    let is_part = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.');
    for (at, mark) in text.match_indices(['=', ':']) {
        let before = text[..at].trim_end();
        let quoted = before.strip_suffix(['"', '\'']).map(|before| before.trim_end_matches('\\'));
        let name = quoted.unwrap_or(before).rsplit(|char| !is_part(char)).next().unwrap_or_default();
        if !is_parameter(name) {
            continue;
        }
        let is_header = mark == ":" && quoted.is_none();
        let after = text[at + 1..].trim_start().trim_start_matches('\\');
        let start = text.len() - after.len();
        let value = match after.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                let value = after[1..].split(quote).next().unwrap_or_default();
                start + 1..start + 1 + value.trim_end_matches('\\').len()
            }
            // A number or a structure of JSON, or a comparison.
            _ if mark == ":" && quoted.is_some() || after.starts_with('=') => continue,
            _ => {
                let is_end = |char: char| {
                    char.is_whitespace()
                        || matches!(char, '&' | ';' | ',' | '"' | '\'' | '<' | '>' | ')' | '}' | ']')
                };
                let value = after.split(is_end).next().unwrap_or_default();
                if is_header && !is_value_of(name, value) {
                    continue;
                }
                start..start + value.len()
            }
        };
        if !is_operator(&text[value.clone()]) {
            ranges.push(value);
        }
    }
}

fn is_parameter(name: &str) -> bool {
    let last = name.rsplit(['-', '_', '.']).next().unwrap_or_default();
    is_name(name) || PARAMETER_WORDS.iter().any(|word| last.eq_ignore_ascii_case(word))
}

/// Whether a word behind `name:` without quotes is the secret, and no prose.
fn is_value_of(name: &str, value: &str) -> bool {
    let is_scheme = SCHEMES.iter().any(|scheme| value.eq_ignore_ascii_case(scheme));
    let last = words(name);
    let last = last.rsplit('-').next().unwrap_or_default();
    let is_header = name.contains('-') && value.len() >= PART_MIN;
    !is_scheme && (is_header || is_proof(value) || PASSWORDS.contains(&last) && !value.is_empty())
}

/// Whether a word is no word of prose: it has more than small letters behind its first, or is very long.
fn is_proof(word: &str) -> bool {
    const PROSE_MAX: usize = 19;
    let has_other = || word.bytes().skip(1).any(|byte| !byte.is_ascii_lowercase());
    word.len() >= PART_MIN && (word.len() > PROSE_MAX || has_other())
}

/// An operator of a format, such as `%REQ(X-TOKEN)%`, and a variable: the value comes later.
fn is_operator(value: &str) -> bool {
    let is_format = value.strip_prefix('%').is_some_and(|rest| {
        rest.bytes().take_while(|byte| byte.is_ascii_uppercase() || *byte == b'_').count() >= 3
    });
    is_format || value.starts_with("${") || value.starts_with("{{") || is_hidden(value)
}

/// `Bearer …`, tokens in three parts, and secrets with the mark of their issuer.
fn proofs(text: &str, ranges: &mut Vec<Range<usize>>) {
    let is_part =
        |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.' | '+' | '/' | '=' | '~');
    let (mut before, mut end) = ("", 0);
    while let Some(start) = text[end..].find(is_part).map(|skipped| end + skipped) {
        let length = text[start..].find(|char| !is_part(char)).unwrap_or(text.len() - start);
        let (word, gap) = (&text[start..start + length], &text[end..start]);
        let has_scheme = SCHEMES.iter().any(|scheme| before.eq_ignore_ascii_case(scheme));
        // An option of a command, with its value.
        let is_option = before.starts_with("--") && is_parameter(before) && !word.starts_with('-');
        if gap == " " && (has_scheme && is_proof(word) || is_option) {
            ranges.push(start..start + length);
        }
        marked(word, start, ranges);
        (before, end) = (word, start + length);
    }
}

fn marked(word: &str, at: usize, ranges: &mut Vec<Range<usize>>) {
    let begins = |index: usize| !word[..index].ends_with(|char: char| char.is_ascii_alphanumeric());
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    for (mark, least) in MARKED {
        for (index, _) in word.match_indices(mark).filter(|(index, _)| begins(*index)) {
            let behind =
                word.as_bytes()[index + mark.len()..].iter().take_while(|byte| is_part(byte)).count();
            // The key ids of AWS have a length of their own, and no lower case.
            let is_key_id = least == 16 && mark.len() == 4;
            let rest = &word[index + mark.len()..index + mark.len() + behind];
            let fits = match is_key_id {
                true => behind == least && rest.bytes().all(|byte| !byte.is_ascii_lowercase()),
                false => behind >= least,
            };
            if fits {
                ranges.push(at + index..at + index + mark.len() + behind);
            }
        }
    }
    for (index, _) in word.match_indices(JWT).filter(|(index, _)| begins(*index)) {
        let end = word[index..].find(['+', '/', '=', '~']).unwrap_or(word.len() - index);
        let parts: Vec<&str> = word[index..index + end].split('.').collect();
        // An encrypted one has five parts, the second perhaps empty.
        let is_long = |part: &usize| parts[*part].len() >= PART_MIN;
        if matches!(parts.len(), 3 | 5) && (0..parts.len()).filter(is_long).count() >= parts.len().min(4) {
            ranges.push(at + index..at + index + end);
        }
    }
}

/// PEM, to its end line or to the end.
fn private_keys(text: &str, ranges: &mut Vec<Range<usize>>) {
    let [begin, end] = PEM;
    let mut from = 0;
    while let Some(start) = text[from..].find(begin).map(|at| from + at) {
        let head = start + begin.len();
        let first = text[head..].find("-----").map_or("", |at| &text[start..head + at + 5]);
        let is_key = PRIVATE.iter().any(|kind| first.ends_with(kind));
        let stop = text[head..].find(end).map_or(text.len(), |at| {
            let behind = head + at + end.len();
            text[behind..].find("-----").map_or(text.len(), |at| behind + at + 5)
        });
        if is_key {
            ranges.push(start..stop);
        }
        from = if is_key { stop } else { head };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANARY: &str = "C4n4ry-0123456789abcdef";

    #[test]
    fn adm_12_secrets_are_hidden_by_their_shape() {
        let key_id = "AKIAIOSFODNN7EXAMPLE";
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.c2lnbmF0dXJlLWNhbmFyeQ";
        for (text, shown) in [
            ("https://user:C4n4ry@host/path", "https://[redacted 11 B]@host/path"),
            ("redis://C4n4ry@host", "redis://[redacted 6 B]@host"),
            (
                "see postgres://u:p%40C4n4ry@db:5432/x?sslmode=on",
                "see postgres://[redacted 12 B]@db:5432/x?sslmode=on",
            ),
            ("https://h/t?a=b&client_secret=C4n4ry&c=d", "https://h/t?a=b&client_secret=[redacted 6 B]&c=d"),
            ("https://h/t?access_token=C4n4ry", "https://h/t?access_token=[redacted 6 B]"),
            ("https://h/t?X-Amz-Signature=C4n4ry#x", "https://h/t?X-Amz-Signature=[redacted 8 B]"),
            ("https://h/b?sv=1&sig=C4n4ry%3D", "https://h/b?sv=1&sig=[redacted 9 B]"),
            ("AccountName=a;AccountKey=C4n4ry==;x=y", "AccountName=a;AccountKey=[redacted 8 B];x=y"),
            ("host=db password='C4n 4ry' user=u", "host=db password='[redacted 7 B]' user=u"),
            ("{\"apikey\": \"C4n4ry\", \"a\": \"b\"}", "{\"apikey\": \"[redacted 6 B]\", \"a\": \"b\"}"),
            ("{'client_secret':'C4n4ry'}", "{'client_secret':'[redacted 6 B]'}"),
            ("Bearer C4n4ry", "Bearer [redacted 6 B]"),
            ("say basic dXNlcjpjYW5hcnk= here", "say basic [redacted 16 B] here"),
            (key_id, "[redacted 20 B]"),
            ("x=y ASIAIOSFODNN7EXAMPLE/20260101/eu", "x=y [redacted 20 B]/20260101/eu"),
            (jwt, "[redacted 66 B]"),
            ("ghp_C4n4ry0123456789abcdef", "[redacted 26 B]"),
            (
                "a\n-----BEGIN RSA PRIVATE KEY-----\nC4n4ry\n-----END RSA PRIVATE KEY-----\nb",
                "a\n[redacted 68 B]\nb",
            ),
            ("-----BEGIN PRIVATE KEY-----\nC4n4ry", "[redacted 34 B]"),
            (
                "-----BEGIN PGP PRIVATE KEY BLOCK-----\nx\n-----END PGP PRIVATE KEY BLOCK-----",
                "[redacted 75 B]",
            ),
            // Of letters alone.
            ("Basic dXNlcjpwYXNz", "Basic [redacted 12 B]"),
            ("Bearer abcdefghijklmnopqrst", "Bearer [redacted 20 B]"),
            ("password: hunter", "password: [redacted 6 B]"),
            ("X-Api-Key: hunter\nHost: a", "X-Api-Key: [redacted 6 B]\nHost: a"),
            ("psql --password hunter -h db", "psql --password [redacted 6 B] -h db"),
            ("client%5Fsecret=hunter", "client%5Fsecret=[redacted 6 B]"),
            ("PGPASSWORD=hunter psql", "PGPASSWORD=[redacted 6 B] psql"),
            ("user:hunter@tcp(db:3306)/x", "[redacted 11 B]@tcp(db:3306)/x"),
            ("https://user:hun/ter@host/x", "https://[redacted 12 B]@host/x"),
            (r#"{\"password\": \"hunter\"}"#, r#"{\"password\": \"[redacted 6 B]\"}"#),
            (
                "https://hooks.slack.com/services/T/B/x now",
                "https://hooks.slack.com/services/[redacted 5 B] now",
            ),
            ("eyJhbGciOiJkaXIi..ivivivivivivivi.textTextText.tagTagTag", "[redacted 56 B]"),
        ] {
            let output = hide(text);
            assert_eq!(output.as_deref(), Some(shown), "{text}");
            assert_eq!(output.as_deref().and_then(hide), None, "once: {text}");
        }
        for (mark, least) in MARKED {
            let secret = format!("{mark}{}", "7".repeat(least));
            assert_eq!(hide(&format!("<{secret}>")), Some(format!("<{}>", hidden(secret.len()))));
        }
        let twice = format!("https://{CANARY}@a?token={CANARY} and {CANARY}");
        assert_eq!(
            hide(&twice).as_deref(),
            Some(&*format!("https://[redacted 23 B]@a?token=[redacted 23 B] and {CANARY}"))
        );
    }

    #[test]
    fn adm_12_innocent_texts_are_shown() {
        for text in [
            "",
            "outbound|80||web.default.svc.cluster.local",
            "https://host:443/path@2?key=value&page=7#a",
            "spiffe://prod.example/ns/shop/sa/web",
            "xdstp://authority/envoy.config.cluster.v3.Cluster/a?class=gold",
            "user@example.com",
            "basic authentication is required",
            "the token: expired",
            "Authorization: bearer authentication failed",
            "Basic Authentication is required",
            "http://[::1]:8080/a@b",
            "https://host:443/a@b",
            "run --token-file a, or --help",
            "token=%REQ(X-TOKEN)% %DURATION%",
            "password=${PASSWORD}",
            "request.headers['x-token'] == 'a'",
            "{\"token\": null, \"max_tokens\": 7}",
            "AKIA",
            "AKIAIOSFODNN7EXAMPLES",
            "MAKIAIOSFODNN7EXAMPLE",
            "akiaiosfodnn7example",
            "eyJ.a.b",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
            "sk-short",
            "npm_test",
            "cookie",
            "a=b&partition=7;c:d",
            "tls_inspector",
            "\u{e9}=\u{e9}://\u{e9}",
        ] {
            assert_eq!(hide(text), None, "{text}");
        }
        for name in [
            "x-request-id",
            "key",
            "tokens_per_fill",
            "authority",
            "secretary",
            "monkey",
            "cookie_name",
            "id",
        ] {
            assert!(!is_name(name), "{name}");
        }
        for name in [
            "apikey",
            "X-API-Key",
            "client_secret",
            "AWSAccessKeyId",
            "aws_access_key_id",
            "dbPassword",
            "tokens",
            "PGPASSWORD",
            "accesstoken",
            "clientsecret",
            "apiKeys",
            "token2",
            "password_v2",
            "psk",
        ] {
            assert!(is_name(name), "{name}");
        }
    }
}
