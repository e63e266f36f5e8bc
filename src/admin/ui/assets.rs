//! The sheet, the scripts and the icon, in the binary. Their path has the hash of all of them, so that a page
//! and its assets are of one release (PAG-2).

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// An asset: its name, its media type, its bytes.
type Asset = (&'static str, &'static str, &'static [u8]);

const ASSETS: [Asset; 5] = [
    ("page.css", "text/css; charset=utf-8", include_bytes!("assets/page.css")),
    ("icon.svg", "image/svg+xml", include_bytes!("assets/icon.svg")),
    ("live.js", "text/javascript; charset=utf-8", include_bytes!("assets/live.js")),
    ("table.js", "text/javascript; charset=utf-8", include_bytes!("assets/table.js")),
    ("plot.js", "text/javascript; charset=utf-8", include_bytes!("assets/plot.js")),
];

/// Other bytes have another path, so a browser may keep an asset and ask no more (RFC 8246).
const KEPT: &str = "private, max-age=31536000, immutable";

/// Digits of the hash in a path.
const HASH_DIGITS: usize = 16;

/// The hash of all assets.
pub(super) static HASH: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = blake3::Hasher::new();
    for (name, _, bytes) in ASSETS {
        hasher.update(name.as_bytes()).update(&bytes.len().to_le_bytes()).update(bytes);
    }
    hasher.finalize().to_hex().chars().take(HASH_DIGITS).collect()
});

/// The asset at `HASH/name`; `None` for one of another release.
pub(super) fn find(path: &str) -> Option<Response> {
    let name = path.strip_prefix(HASH.as_str())?.strip_prefix('/')?;
    let (_, media_type, bytes) = ASSETS.into_iter().find(|(asset, ..)| *asset == name)?;
    let headers = [(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, KEPT)];
    Some((headers, bytes).into_response())
}
