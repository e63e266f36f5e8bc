//! Measures of the house. The bound of each is the value reached so far: a change may not make the measure
//! worse, and a change for the better lowers the bound.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use syn::visit::{self, Visit};

use super::{as_module, code, is_test_file, refuse, sources};

/// Structs with more fields than a reader keeps in mind need a reason.
const FIELDS: usize = 12;
/// The begin of the sentence with the reason, in the comment of a struct.
const WIDE: &str = "Wide because";
/// Words without a noun.
const BANNED: &[&str] = &["of", "own", "told", "said", "known", "found", "wanted", "former"];
/// The width that rustfmt gives comments.
const COMMENT_WIDTH: usize = 110;

/// The bounds. A new storey may raise a bound, with a reason in the ADR of the storey.
const CODE_LINES: usize = 122_700;
const BIG_STRUCTS: usize = 0;
const BANNED_NAMES: usize = 3;
const TUPLE_PARAMETERS: usize = 0;
const SCATTERED_TYPES: usize = 1;
const ORPHAN_FILES: usize = 0;
const TYPE_NAMES_TWICE: usize = 2;
const WIDE_COMMENTS: usize = 0;
const FILES_IN_CIRCLES: usize = 0;
const LARGEST_CIRCLE: usize = 0;

/// A file of the relay or of a crate, without test files.
struct Source {
    /// As if the crate were a module of the relay.
    path: String,
    /// The room, if the room is a crate.
    package: Option<String>,
    text: &'static str,
    facts: Facts,
}

/// Parsed once for all tests.
static HOUSE: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let is_ours = |path: &str| path.starts_with("src/") || path.starts_with("crates/");
    let files = sources().iter().filter(|(path, _)| is_ours(path) && !is_test_file(path));
    let read = |(path, text): &'static (String, String)| {
        let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut facts = Facts::default();
        facts.visit_file(&file);
        let package = path.strip_prefix("crates/").and_then(|rest| rest.split('/').next());
        Source { path: as_module(path), package: package.map(str::to_owned), text, facts }
    };
    files.map(read).collect()
});

/// Tells all cases above the bound. Below the bound, asks for a lower one.
fn check(measure: &str, bound: usize, cases: &[String]) {
    let reached = cases.len();
    if reached > bound {
        refuse(&[cases, &[format!("{measure}: {reached}, and {bound} are allowed")]].concat());
    }
    assert!(
        reached == bound,
        "{measure}: {reached} are better than {bound}: lower the bound in tests/tidy/ratchets.rs"
    );
}

/// The text of a comment, without line breaks.
fn comment(attributes: &[syn::Attribute]) -> String {
    let line = |attribute: &syn::Attribute| match &attribute.meta {
        syn::Meta::NameValue(syn::MetaNameValue {
            path,
            value: syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }),
            ..
        }) if path.is_ident("doc") => Some(text.value().trim().to_owned()),
        _ => None,
    };
    attributes.iter().filter_map(line).collect::<Vec<_>>().join(" ")
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    let is_cfg_test = |attribute: &syn::Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|argument| argument == "test")
    };
    attributes.iter().any(is_cfg_test)
}

/// The facts of a file that the measures count.
#[derive(Default)]
struct Facts {
    types: Vec<String>,
    big_structs: Vec<String>,
    banned: Vec<String>,
    tuples: Vec<String>,
    /// Types with inherent impls here.
    inherent: BTreeSet<String>,
    /// Items beside `use`, `mod` and impls.
    others: usize,
    /// All paths, of `use` and elsewhere.
    paths: Vec<Vec<String>>,
    /// The paths of `pub use`.
    exports: Vec<Vec<String>>,
}

impl Facts {
    fn name(&mut self, ident: &syn::Ident) {
        if BANNED.contains(&ident.to_string().as_str()) {
            self.banned.push(ident.to_string());
        }
    }

    fn tree(&mut self, tree: &syn::UseTree, before: &[String]) {
        match tree {
            syn::UseTree::Path(path) => {
                self.tree(&path.tree, &[before, &[path.ident.to_string()]].concat());
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(item, before)),
            syn::UseTree::Name(name) => self.paths.push([before, &[name.ident.to_string()]].concat()),
            syn::UseTree::Rename(name) => self.paths.push([before, &[name.ident.to_string()]].concat()),
            syn::UseTree::Glob(_) => self.paths.push(before.to_vec()),
        }
    }
}

impl<'ast> Visit<'ast> for Facts {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Const(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if is_test(attributes) {
            return;
        }
        let is_inherent = matches!(item, syn::Item::Impl(item) if item.trait_.is_none());
        self.others += usize::from(!is_inherent && !matches!(item, syn::Item::Use(_) | syn::Item::Mod(_)));
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.types.push(item.ident.to_string());
        if item.fields.len() > FIELDS && !comment(&item.attrs).contains(WIDE) {
            self.big_structs.push(format!("{} has {} fields", item.ident, item.fields.len()));
        }
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.types.push(item.ident.to_string());
        visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.types.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.trait_.is_none()
            && let syn::Type::Path(path) = &*item.self_ty
            && let Some(last) = path.path.segments.last()
        {
            self.inherent.insert(last.ident.to_string());
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let before = self.paths.len();
        self.tree(&item.tree, &[]);
        if !matches!(item.vis, syn::Visibility::Inherited) {
            self.exports.extend_from_slice(&self.paths[before..]);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        field.ident.iter().for_each(|ident| self.name(ident));
        visit::visit_field(self, field);
    }

    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        self.name(&pattern.ident);
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        for input in &signature.inputs {
            if let syn::FnArg::Typed(typed) = input
                && matches!(*typed.pat, syn::Pat::Tuple(_))
            {
                self.tuples.push(signature.ident.to_string());
            }
        }
        visit::visit_signature(self, signature);
    }
}

/// The modules of the house, each with the paths of its re-exports.
type Modules = BTreeMap<Vec<String>, Vec<Vec<String>>>;

/// The module behind a path in `here`, and behind re-exports; `None` for a path to another crate.
fn target(
    path: &[String],
    here: &[String],
    package: Option<&String>,
    modules: &Modules,
) -> Option<Vec<String>> {
    let ups = path.iter().take_while(|segment| *segment == "super").count();
    let (base, rest) = match path.first()?.as_str() {
        "crate" => (package.into_iter().cloned().collect(), &path[1..]),
        "super" => (here[..here.len().checked_sub(ups)?].to_vec(), &path[ups..]),
        "self" => (here.to_vec(), &path[1..]),
        _ => {
            let child = [here, &path[..1]].concat();
            (modules.contains_key(&child).then(|| here.to_vec())?, path)
        }
    };
    let whole = [base.as_slice(), rest].concat();
    let length = (base.len()..=whole.len()).rev().find(|length| modules.contains_key(&whole[..*length]))?;
    let module = whole[..length].to_vec();
    let exported =
        whole.get(length).and_then(|name| modules[&module].iter().find(|path| path.last() == Some(name)));
    let behind = exported.filter(|path| *module != *here && path.as_slice() != &whole[..]);
    behind.and_then(|path| target(path, &module, package, modules)).or(Some(module))
}

/// The module of a file: `engine::view` for `src/engine/view/mod.rs`.
fn module(path: &str) -> Vec<String> {
    let path = path.trim_start_matches("src/").trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    path.split('/').filter(|segment| *segment != "lib").map(str::to_owned).collect()
}

#[test]
fn the_code_does_not_grow_unsaid() {
    let is_code = |line: &str| !line.trim().is_empty();
    let lines = |source: &Source| code(source.text).filter(|(_, line)| is_code(line)).count();
    let reached: usize = HOUSE.iter().map(lines).sum();
    assert!(
        reached <= CODE_LINES,
        "{reached} lines of code, and the bound is {CODE_LINES}: see tests/tidy/ratchets.rs"
    );
    // A mend that takes some lines away needs no new bound, and many lines less are not to grow back unseen.
    assert!(
        reached + 200 > CODE_LINES,
        "{reached} lines of code: lower the bound of {CODE_LINES} in tests/tidy/ratchets.rs"
    );
}

#[test]
fn names_are_nouns() {
    let named = |cases: fn(&Facts) -> &Vec<String>| -> Vec<String> {
        let of_file = |source: &Source| {
            cases(&source.facts).iter().map(|case| format!("{}: {case}", source.path)).collect::<Vec<_>>()
        };
        HOUSE.iter().flat_map(of_file).collect()
    };
    check("names that are no nouns", BANNED_NAMES, &named(|facts| &facts.banned));
    check("pairs as parameters", TUPLE_PARAMETERS, &named(|facts| &facts.tuples));
    let big_structs = named(|facts| &facts.big_structs);
    check("structs with more than 12 fields and no reason", BIG_STRUCTS, &big_structs);
}

#[test]
fn a_type_name_stands_once_in_a_crate() {
    let mut places = BTreeMap::<(&Option<String>, &String), BTreeSet<&String>>::new();
    for source in HOUSE.iter() {
        for name in &source.facts.types {
            places.entry((&source.package, name)).or_default().insert(&source.path);
        }
    }
    let twice = places.into_iter().filter(|(_, files)| files.len() > 1);
    let cases: Vec<String> = twice.map(|((_, name), files)| format!("{name}: {files:?}")).collect();
    check("type names that stand twice", TYPE_NAMES_TWICE, &cases);
}

#[test]
fn state_is_divided() {
    let mut files = BTreeMap::<(Option<&str>, &String), BTreeSet<&str>>::new();
    let mut orphans = Vec::new();
    for source in HOUSE.iter() {
        let facts = &source.facts;
        let is_foreign = |name: &&String| !facts.types.contains(name);
        if facts.others == 0
            && !facts.inherent.is_empty()
            && facts.inherent.iter().all(|name| is_foreign(&name))
        {
            orphans.push(format!("{}: {:?}", source.path, facts.inherent));
        }
        for name in &facts.inherent {
            files.entry((source.package.as_deref(), name)).or_default().insert(&source.path);
        }
    }
    let scattered = files.into_iter().filter(|(_, files)| files.len() > 2);
    let cases: Vec<String> = scattered.map(|((_, name), files)| format!("{name}: {files:?}")).collect();
    check("types with inherent impls in more than two files", SCATTERED_TYPES, &cases);
    check("files with nothing but impls of a type from elsewhere", ORPHAN_FILES, &orphans);
}

#[test]
fn comments_are_not_wide() {
    let mut cases = Vec::new();
    for source in HOUSE.iter() {
        for (number, line) in source.text.lines().enumerate() {
            if line.trim_start().starts_with("//") && line.chars().count() > COMMENT_WIDTH {
                cases.push(format!("{}:{}: {} columns", source.path, number + 1, line.chars().count()));
            }
        }
    }
    check("comments wider than 110 columns", WIDE_COMMENTS, &cases);
}

/// Within a folder, files and folders stand in an order: each uses only files and folders before. A circle
/// has no order. `mod.rs` is in no circle, since `mod.rs` may use the whole folder, and the whole folder may
/// use `mod.rs`.
#[test]
fn files_use_no_circles() {
    let modules: Modules =
        HOUSE.iter().map(|source| (module(&source.path), source.facts.exports.clone())).collect();
    let mut folders = BTreeMap::<&[String], DiGraphMap<&str, ()>>::new();
    for source in HOUSE.iter() {
        let (here, _) = modules.get_key_value(&module(&source.path)).expect("its own module");
        for path in &source.facts.paths {
            let Some(there) = target(path, here, source.package.as_ref(), &modules) else { continue };
            let (there, _) = modules.get_key_value(&there).expect("a module");
            let common = here.iter().zip(there).take_while(|(one, other)| one == other).count();
            if let (Some(from), Some(to)) = (here.get(common), there.get(common)) {
                folders.entry(&here[..common]).or_default().add_edge(from, to, ());
            }
        }
    }
    let circles = folders.iter().flat_map(|(folder, graph)| {
        let circles = tarjan_scc(graph).into_iter().filter(|circle| circle.len() > 1);
        circles.map(|circle| (folder.join("/"), circle)).collect::<Vec<_>>()
    });
    let circles: Vec<(String, Vec<&str>)> = circles.collect();
    let cases = circles.iter().flat_map(|(folder, circle)| {
        circle.iter().map(move |file| format!("{folder}/{file}: in a circle with {circle:?}"))
    });
    check("files in circles", FILES_IN_CIRCLES, &cases.collect::<Vec<_>>());
    let largest = circles.iter().map(|(_, circle)| circle.len()).max().unwrap_or_default();
    assert_eq!(largest, LARGEST_CIRCLE, "files in the largest circle");
}

#[test]
fn the_measures_see_what_they_count() {
    let text = "struct A { of: u8 } impl B { fn f((a, b): (u8, u8)) { let own = a; } } pub use z::W;
        #[cfg(test)] mod t { struct C { told: u8 } }";
    let mut facts = Facts::default();
    facts.visit_file(&syn::parse_file(text).expect("a file"));
    assert_eq!((facts.types, facts.banned), (vec!["A".into()], vec!["of".into(), "own".into()]));
    assert_eq!((facts.tuples, facts.inherent), (vec!["f".into()], BTreeSet::from(["B".into()])));
    assert_eq!((facts.others, facts.exports), (1, vec![vec!["z".into(), "W".into()]]));

    let fields: String = (0..=FIELDS).map(|number| format!("f{number}: u8,")).collect();
    let text = format!("struct A {{ {fields} }} /// Wide\n/// because of f0.\n struct B {{ {fields} }}");
    let mut facts = Facts::default();
    facts.visit_file(&syn::parse_file(&text).expect("a file"));
    assert_eq!(facts.big_structs, ["A has 13 fields"]);

    let path = |text: &str| -> Vec<String> { text.split("::").map(str::to_owned).collect() };
    let modules =
        Modules::from([(path("a"), vec![path("b::X")]), (path("a::b"), Vec::new()), (path("c"), Vec::new())]);
    let target = |text, here| target(&path(text), &path(here), None, &modules);
    assert_eq!(target("crate::a::X", "c"), Some(path("a::b")));
    assert_eq!(target("super::a::Y", "c"), Some(path("a")));
    assert_eq!(target("b::X", "a"), Some(path("a::b")));
    assert_eq!(target("std::fmt", "a"), None);
}
