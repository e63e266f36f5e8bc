//! The contents in a difference, where both are at hand. The relay keeps no content that only a client still
//! has, and says so (ADM-12, ADR 30).

use std::sync::Arc;

use serde_json::Value;
use sluice_admin_api::names::ContentDifference;

use crate::admin::content::show;
use crate::admin::state::{Admin, ContentMode};
use crate::driver::api::clients::HeldVersion;
use sluice_json::redact::{diff_text, patch};
use sluice_xds::{Resource, TypeUrl};

/// Changes with contents in one answer. Each is decoded twice, and a large one takes 100 ms.
const CONTENTS_MAX: usize = 16;

/// The longest difference of one resource, in bytes. The whole answer stays below 1 MiB.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// The form of differences of contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiffForm {
    /// No contents.
    Names,
    /// A JSON patch.
    Patch,
    /// A unified diff of YAML.
    Text,
}

pub(super) const FORMATS: [(&str, DiffForm); 3] =
    [("names", DiffForm::Names), ("patch", DiffForm::Patch), ("text", DiffForm::Text)];

/// The contents of one answer.
pub(super) struct ComparedContents<'a> {
    admin: &'a Admin,
    format: DiffForm,
    left: usize,
}

impl<'a> ComparedContents<'a> {
    pub fn new(admin: &'a Admin, format: DiffForm) -> ComparedContents<'a> {
        ComparedContents { admin, format, left: CONTENTS_MAX }
    }

    /// The difference of two versions of a resource; `None` if contents were not asked for.
    pub async fn difference(
        &mut self,
        type_url: &TypeUrl,
        name: &str,
        versions: [HeldVersion; 2],
    ) -> Option<ContentDifference> {
        if self.format == DiffForm::Names {
            return None;
        }
        Some(match self.both(type_url, name, versions) {
            Ok([old, new]) => compare(show(&old).await, show(&new).await, self.format).await,
            Err(reason) => ContentDifference::NoContent(reason),
        })
    }

    /// # Errors
    /// The reason for which a content is not shown.
    fn both(
        &mut self,
        type_url: &TypeUrl,
        name: &str,
        versions: [HeldVersion; 2],
    ) -> Result<[Arc<Resource>; 2], String> {
        if type_url.is_secret() {
            return Err("a Secret is never shown".to_owned());
        }
        if self.admin.settings.get().content == ContentMode::Off {
            return Err("admin.content is off".to_owned());
        }
        if self.left == 0 {
            return Err(format!("only the first {CONTENTS_MAX} changes have contents; name= narrows"));
        }
        let copies = self.admin.relay.copies(type_url.as_str(), name);
        let find = |held: HeldVersion| {
            let version = held.known().ok_or("the version that the client has is not known")?;
            let mut bodies = copies.iter().filter_map(|copy| copy.resource.as_ref());
            bodies.find(|resource| resource.version == version).cloned().ok_or_else(|| {
                let brief = sluice_text::version(&version.to_string());
                format!("the content of {brief} is gone: the relay keeps none that only a client still has")
            })
        };
        let [old, new] = versions;
        let both = [find(old)?, find(new)?];
        self.left -= 1;
        Ok(both)
    }
}

async fn compare(old: Value, new: Value, format: DiffForm) -> ContentDifference {
    // Long texts take a while, and other clients of this thread are served meanwhile.
    let difference = tokio::task::spawn_blocking(move || difference(&old, &new, format)).await;
    difference.unwrap_or_else(|_| ContentDifference::NoContent("the contents cannot be compared".to_owned()))
}

fn difference(old: &Value, new: &Value, format: DiffForm) -> ContentDifference {
    if old == new {
        return ContentDifference::NoContent("the difference is in fields that are not shown".to_owned());
    }
    if format == DiffForm::Patch {
        let patch = patch(old, new);
        return match patch.to_string().len() {
            0..=TEXT_BYTES_MAX => ContentDifference::Patch(patch),
            bytes => ContentDifference::NoContent(format!(
                "the patch has {bytes} bytes; format=text shows its begin"
            )),
        };
    }
    let yaml = |value: &Value| serde_saphyr::to_string(value);
    let (Ok(old), Ok(new)) = (yaml(old), yaml(new)) else {
        return ContentDifference::NoContent("the contents cannot be written as YAML".to_owned());
    };
    let mut text = diff_text(&old, &new);
    if text.len() > TEXT_BYTES_MAX {
        let bytes = text.len();
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push_str(&format!("\n[cut, {bytes} B]\n"));
    }
    ContentDifference::Text(text)
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_bounded() {
        let long = |letter: &str| json!({ "name": letter.repeat(100_000), "same": 1 });
        let ContentDifference::Text(text) = difference(&long("a"), &long("b"), DiffForm::Text) else {
            panic!("text")
        };
        assert!(text.len() < TEXT_BYTES_MAX + 100 && text.ends_with(" B]\n"), "{}", text.len());
        let patch = difference(&long("a"), &long("b"), DiffForm::Patch);
        assert!(matches!(patch, ContentDifference::NoContent(reason) if reason.contains("bytes")));
        let none = difference(&long("a"), &long("a"), DiffForm::Text);
        assert!(matches!(none, ContentDifference::NoContent(reason) if reason.contains("not shown")));
    }
}
