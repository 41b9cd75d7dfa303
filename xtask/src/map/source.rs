//! Modules of a crate and the paths that they name.

use super::Arrows;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::visit::Visit;

/// One crate.
pub(super) struct Crate {
    pub(super) name: String,
    /// Crates of the workspace that it depends on.
    pub(super) uses: Vec<&'static str>,
    modules: BTreeMap<Vec<String>, Module>,
}

/// A module.
#[derive(Default)]
struct Module {
    file: String,
    /// The first sentence of its head.
    about: String,
    /// Paths within the crate, with lines.
    named: Vec<(Vec<String>, usize)>,
    /// Functions that other files can call, with lines.
    public: Vec<(String, usize)>,
    /// How often each word stands in the code.
    words: BTreeMap<String, usize>,
    /// Names that stand for other paths of the crate.
    aliases: BTreeMap<String, Vec<String>>,
}

impl Crate {
    /// Reads the sources in `folder`.
    pub(super) fn read(name: &str, folder: &Path, uses: Vec<&'static str>) -> Result<Self, String> {
        let mut modules = BTreeMap::new();
        let main = ["lib.rs", "main.rs"].map(|file| folder.join(file)).into_iter().find(|file| file.exists());
        let main = main.ok_or_else(|| format!("{}: neither lib.rs nor main.rs", folder.display()))?;
        read(&main, folder, &[], &mut modules)?;
        Ok(Self { name: name.to_owned(), uses, modules })
    }

    /// Functions that other files can call: name, file, line.
    pub(super) fn public(&self) -> impl Iterator<Item = (&str, &str, usize)> {
        self.modules
            .values()
            .flat_map(|module| module.public.iter().map(|(name, line)| (name.as_str(), module.file.as_str(), *line)))
    }

    /// How often a word stands in the code, tests apart.
    pub(super) fn count(&self, word: &str) -> usize {
        self.modules.values().filter_map(|module| module.words.get(word)).sum()
    }

    /// Names of the modules right below `parent`.
    pub(super) fn children(&self, parent: &[String]) -> Vec<String> {
        let below = self.modules.keys().filter(|path| path.len() == parent.len() + 1 && path.starts_with(parent));
        below.filter_map(|path| path.last().cloned()).collect()
    }

    /// Rooms at the top of the crate with the first sentence of each, users before what they use.
    pub(super) fn rooms(&self) -> impl Iterator<Item = (String, &str)> {
        self.levels().into_iter().flatten().map(|name| {
            let about = self.modules.get(std::slice::from_ref(&name)).map_or("", |module| &module.about);
            (name, about)
        })
    }

    /// Uses between the children of `parent`.
    pub(super) fn arrows(&self, parent: &[String]) -> Arrows {
        let depth = parent.len();
        let mut arrows = Arrows::new();
        for (path, module) in self.modules.iter().filter(|(path, _)| path.len() > depth && path.starts_with(parent)) {
            let from = &path[depth];
            for (named, line) in &module.named {
                let target = self.resolve(named);
                if target.len() > depth && target.starts_with(parent) && target[depth] != *from {
                    let to = arrows.entry(from.clone()).or_default().entry(target[depth].clone()).or_default();
                    to.insert(format!("{}:{line}", module.file));
                }
            }
        }
        arrows
    }

    /// The module in which the path ends, re-exports followed.
    fn resolve(&self, path: &[String]) -> Vec<String> {
        let mut path = path.to_vec();
        // An alias may stand for another.
        for _ in 0..8 {
            let at = (0..=path.len()).rev().find(|n| self.modules.contains_key(&path[..*n])).unwrap_or(0);
            let Some(name) = path.get(at) else { return path };
            let Some(alias) = self.modules.get(&path[..at]).and_then(|module| module.aliases.get(name)) else {
                path.truncate(at);
                return path;
            };
            path = [alias.as_slice(), &path[at + 1..]].concat();
        }
        path
    }

    /// Names of the rooms at the top, users before what they use.
    fn levels(&self) -> Vec<Vec<String>> {
        let arrows = self.arrows(&[]);
        let mut left: BTreeSet<String> = self.children(&[]).into_iter().collect();
        let mut levels = Vec::new();
        while !left.is_empty() {
            let used: BTreeSet<&String> =
                left.iter().filter_map(|room| arrows.get(room)).flat_map(BTreeMap::keys).collect();
            let mut level: Vec<String> = left.iter().filter(|room| !used.contains(room)).cloned().collect();
            if level.is_empty() {
                // A circle: it is reported elsewhere.
                level = left.iter().cloned().collect();
            }
            left.retain(|room| !level.contains(room));
            levels.push(level);
        }
        levels
    }
}

/// Reads one file and those of its modules.
fn read(
    file: &Path,
    folder: &Path,
    path: &[String],
    modules: &mut BTreeMap<Vec<String>, Module>,
) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let parsed = syn::parse_file(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    let shown = file.strip_prefix(crate::root()).unwrap_or(file).display().to_string();
    let mut visitor = Visitor { path: path.to_vec(), module: Module { file: shown, ..Module::default() } };
    visitor.module.about = first_sentence(&text);
    visitor.visit_file(&parsed);
    let code = parsed.items.iter().filter(|item| !is_test_item(item)).map(quote::ToTokens::to_token_stream);
    code.for_each(|tokens| visitor.module.count(tokens));
    modules.insert(path.to_vec(), visitor.module);
    for item in &parsed.items {
        let syn::Item::Mod(module) = item else { continue };
        if module.content.is_some() || is_test(&module.attrs) {
            continue;
        }
        let name = module.ident.to_string();
        let flat = folder.join(format!("{name}.rs"));
        let below = folder.join(&name);
        let file = if flat.exists() { flat } else { below.join("mod.rs") };
        read(&file, &below, &[path, &[name]].concat(), modules)?;
    }
    Ok(())
}

fn is_test_item(item: &syn::Item) -> bool {
    match item {
        syn::Item::Mod(of) => is_test(&of.attrs),
        syn::Item::Fn(of) => is_test(&of.attrs),
        syn::Item::Impl(of) => is_test(&of.attrs),
        syn::Item::Use(of) => is_test(&of.attrs),
        _ => false,
    }
}

impl Module {
    fn count(&mut self, tokens: proc_macro2::TokenStream) {
        for token in tokens {
            match token {
                proc_macro2::TokenTree::Ident(name) => *self.words.entry(name.to_string()).or_default() += 1,
                proc_macro2::TokenTree::Group(group) => self.count(group.stream()),
                _ => {}
            }
        }
    }

    fn function(&mut self, visibility: &syn::Visibility, attributes: &[syn::Attribute], name: &syn::Ident) {
        if !matches!(visibility, syn::Visibility::Inherited) && !is_test(attributes) {
            self.public.push((name.to_string(), name.span().start().line));
        }
    }
}

/// The first sentence of the comment at the head of a file.
fn first_sentence(text: &str) -> String {
    let head: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
    let paragraph = head.split(|line| line.is_empty()).next().unwrap_or_default().join(" ");
    let end = paragraph.find(". ").unwrap_or(paragraph.trim_end_matches([':', '.']).len());
    // A bar would end the cell, and links lead nowhere from there.
    paragraph[..end].replace('|', "\\|").replace("[`", "`").replace("`]", "`")
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test")
    })
}

struct Visitor {
    path: Vec<String>,
    module: Module,
}

impl Visitor {
    /// The path from the crate's root, if it can be one within the crate.
    fn absolute(&self, segments: &[String]) -> Option<Vec<String>> {
        let mut base = match segments.first()?.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => self.path.clone(),
            _ => return None,
        };
        for segment in segments {
            match segment.as_str() {
                "crate" | "self" => {}
                "super" => {
                    base.pop();
                }
                name => base.push(name.to_owned()),
            }
        }
        Some(base)
    }

    fn name(&mut self, segments: &[String], line: usize) {
        if let Some(path) = self.absolute(segments) {
            self.module.named.push((path, line));
        }
    }

    fn tree(&mut self, before: &[String], tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => self.tree(&[before, &[path.ident.to_string()]].concat(), &path.tree),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(before, tree);
                }
            }
            syn::UseTree::Glob(glob) => self.name(before, glob.star_token.spans[0].start().line),
            syn::UseTree::Name(name) => self.alias(before, &name.ident, &name.ident),
            syn::UseTree::Rename(rename) => self.alias(before, &rename.ident, &rename.rename),
        }
    }

    fn alias(&mut self, before: &[String], name: &syn::Ident, known_as: &syn::Ident) {
        let itself = name == "self";
        let whole = if itself { before.to_vec() } else { [before, &[name.to_string()]].concat() };
        self.name(&whole, name.span().start().line);
        let alias = match (itself && known_as == "self", whole.last()) {
            (true, Some(last)) => last.clone(),
            _ => known_as.to_string(),
        };
        if let Some(path) = self.absolute(&whole) {
            self.module.aliases.insert(alias, path);
        }
    }

    fn tokens(&mut self, tokens: proc_macro2::TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        for token in tokens {
            match token {
                proc_macro2::TokenTree::Ident(name) if path.is_empty() || colons == 2 => {
                    line = name.span().start().line;
                    path.push(name.to_string());
                    colons = 0;
                }
                proc_macro2::TokenTree::Punct(punct) if punct.as_char() == ':' && colons < 2 => colons += 1,
                other => {
                    self.name(&path, line);
                    path.clear();
                    colons = 0;
                    match other {
                        proc_macro2::TokenTree::Group(group) => self.tokens(group.stream()),
                        proc_macro2::TokenTree::Ident(name) => path.push(name.to_string()),
                        _ => {}
                    }
                }
            }
        }
        self.name(&path, line);
    }
}

impl<'ast> Visit<'ast> for Visitor {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.tree(&[], &item.tree);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if is_test(&module.attrs) {
            return;
        }
        self.path.push(module.ident.to_string());
        syn::visit::visit_item_mod(self, module);
        self.path.pop();
    }

    fn visit_item_fn(&mut self, of: &'ast syn::ItemFn) {
        self.module.function(&of.vis, &of.attrs, &of.sig.ident);
        syn::visit::visit_item_fn(self, of);
    }

    fn visit_impl_item_fn(&mut self, of: &'ast syn::ImplItemFn) {
        self.module.function(&of.vis, &of.attrs, &of.sig.ident);
        syn::visit::visit_impl_item_fn(self, of);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let line = path.segments.first().map_or(0, |segment| segment.ident.span().start().line);
        self.name(&segments, line);
        // A name at the start of a path may be a module that was imported.
        if segments.len() > 1
            && let Some(alias) = self.module.aliases.get(&segments[0]).cloned()
        {
            self.module.named.push(([alias.as_slice(), &segments[1..]].concat(), line));
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, one: &'ast syn::Macro) {
        self.tokens(one.tokens.clone());
        syn::visit::visit_macro(self, one);
    }
}
