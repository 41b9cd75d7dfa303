//! The kernel that a guest boots: found in a file, in a folder, in a package, or got from a registry.
//!
//! ```text
//! debian-X.Y   the newest build of that registry (see `registry`), got once and kept in the cache. An existing one
//!              is taken: the kernel of a name changes only when its folder is removed
//! FILE.deb     unpacked into the folder of this command; .rpm, too
//! FOLDER       an unpacked package (boot/vmlinuz-*), a folder of kernels, or a tree in which a kernel was built
//! FILE         a bzImage or a vmlinux
//! ```
//! The head of an x86 bzImage has the version (Documentation/arch/x86/boot.rst: `HdrS` at 0x202, the version's place at
//! 0x20e).

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::GuestError;
use super::package::{RPM, natural, unpack, unpacked};
use super::registry::{self, Registry};
use crate::ledger::{self, Ledger};

/// A kernel, ready to be booted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    pub image: PathBuf,
    /// The version in its head; none without such a head.
    pub version: Option<String>,
    /// The package that it came from, with its version.
    pub package: Option<String>,
    /// The folder with its modules.
    pub modules: Option<PathBuf>,
}

/// The file in the cache with the name of its package.
const PACKAGE: &str = "package";

/// Whether a word may name a kernel: one of a registry, or something that is there.
pub fn is_known(word: &str) -> bool {
    registry::of(word).is_some() || Path::new(word).exists()
}

/// Folder of downloaded kernels: `$XDG_CACHE_HOME/iowhy/kernels`, or next to the ledgers.
pub fn cache_directory() -> PathBuf {
    match std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from) {
        Some(home) if home.is_absolute() => home.join("iowhy/kernels"),
        _ => ledger::state_directory().join("kernels"),
    }
}

fn wrong(text: String) -> GuestError {
    GuestError::Kernel(text)
}

/// Finds the kernel that a word names, and gets it if need be. Files unpacked for this command alone go
/// into `scratch`.
///
/// # Errors
/// The mistake in it, and advice.
pub fn find(word: &str, scratch: &Path, ledger: &Ledger) -> Result<Kernel, GuestError> {
    if let Some((registry, version)) = registry::of(word)
        && !Path::new(word).exists()
    {
        return of_registry(word, registry, version, ledger);
    }
    let path = Path::new(word);
    if path.is_dir() {
        return in_folder(path);
    }
    let mut head = [0; 8];
    let mut file = File::open(path).map_err(|error| {
        let forms = registry::forms();
        wrong(format!("no kernel `{word}`: {error}; {forms}, or a path to a vmlinuz, a package or a folder"))
    })?;
    let read = file.read(&mut head).unwrap_or(0);
    if head[..read].starts_with(b"!<arch>\n") || head[..read].starts_with(RPM) {
        let folder = scratch.join(path.file_name().unwrap_or_default());
        unpack(path, &folder)?;
        return in_folder(&folder);
    }
    image(path).ok_or_else(|| wrong(format!("`{word}` is not a kernel: neither a bzImage, a vmlinux nor a package")))
}

/// The kernel in a file, with the modules of the package that was unpacked above it.
fn image(path: &Path) -> Option<Kernel> {
    let mut head = vec![0; 0x300];
    let read = File::open(path).ok()?.read(&mut head).ok()?;
    head.truncate(read);
    let is_image = head.get(0x202..0x206) == Some(b"HdrS");
    if !is_image && !head.starts_with(b"\x7fELF") {
        return None;
    }
    let version = if is_image { version(path, &head) } else { None };
    let release = version.as_deref().and_then(|version| version.split(' ').next());
    let folder = path.parent()?;
    // Beside its modules (Fedora), or in boot.
    let of_release = |above: &Path, release: &str| {
        let places = ["lib/modules", "usr/lib/modules"].map(|place| above.join(place).join(release));
        places.into_iter().find(|place| place.is_dir())
    };
    let beside = folder.join("kernel").is_dir().then(|| folder.to_owned());
    let modules = beside.or_else(|| of_release(folder.parent()?, release?));
    Some(Kernel { image: path.to_owned(), version, package: None, modules })
}

/// The version in the head of a bzImage.
fn version(path: &Path, head: &[u8]) -> Option<String> {
    let at = u64::from(u16::from_le_bytes(head.get(0x20e..0x210)?.try_into().ok()?)) + 0x200;
    let mut file = File::open(path).ok()?;
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(at)).ok()?;
    let mut bytes = Vec::new();
    file.take(200).read_to_end(&mut bytes).ok()?;
    let end = bytes.iter().position(|byte| *byte == 0)?;
    String::from_utf8(bytes[..end].to_vec()).ok().filter(|text| !text.is_empty())
}

/// The newest kernel in a folder.
fn in_folder(folder: &Path) -> Result<Kernel, GuestError> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut places = vec![folder.join("boot"), folder.to_owned()];
    for modules in ["lib/modules", "usr/lib/modules"] {
        places.extend(fs::read_dir(folder.join(modules)).into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    for place in places {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("vmlinuz") || name == "bzImage" {
                found.push(entry.path());
            }
        }
    }
    found.extend([folder.join("arch/x86/boot/bzImage")].into_iter().filter(|path| path.is_file()));
    // Fedora calls the file vmlinuz alone, in a folder of its version.
    let key = |path: &PathBuf| natural(&path.strip_prefix(folder).unwrap_or(path).to_string_lossy());
    found.sort_by_key(key);
    found.iter().rev().find_map(|path| image(path)).ok_or_else(|| {
        let folder = folder.display();
        wrong(format!(
            "no kernel in {folder}: no boot/vmlinuz-*, vmlinuz*, lib/modules/*/vmlinuz or arch/x86/boot/bzImage"
        ))
    })
}

/// The kernel of this name from the cache, or from its registry.
fn of_registry(word: &str, registry: &Registry, version: &str, ledger: &Ledger) -> Result<Kernel, GuestError> {
    let cache = cache_directory();
    let folder = cache.join(word);
    if !folder.exists() {
        fetch(registry, version, &cache, &folder, ledger)?;
    }
    let mut kernel = in_folder(&folder)?;
    kernel.package = fs::read_to_string(folder.join(PACKAGE)).ok().map(|text| text.trim().to_owned());
    Ok(kernel)
}

/// Gets a kernel into the cache. Two that do so at once end with the same.
fn fetch(registry: &Registry, version: &str, cache: &Path, folder: &Path, ledger: &Ledger) -> Result<(), GuestError> {
    let io = |error: std::io::Error| GuestError::Io { what: format!("use the cache {}", cache.display()), error };
    fs::create_dir_all(cache).map_err(io)?;
    let scratch = crate::state::scratch_name(cache, ".getting");
    let _scratch = ledger.create_scratch_directory(&scratch)?;
    let unpacked = scratch.join("unpacked");
    fs::create_dir_all(&unpacked).map_err(io)?;
    let packages = registry.get(version, &scratch)?;
    for (_, file) in &packages {
        unpack(file, &unpacked)?;
    }
    let name = packages.first().map_or("", |(package, _)| &package.name);
    fs::write(unpacked.join(PACKAGE), name).map_err(io)?;
    prune(&unpacked)?;
    match fs::rename(&unpacked, folder) {
        // Another process was quicker.
        Err(_) if folder.exists() => Ok(()),
        renamed => renamed.map_err(io),
    }
}

/// Removes the modules that no guest loads, and what else is there but the image: most of it.
fn prune(folder: &Path) -> Result<(), GuestError> {
    let kernel = in_folder(folder)?;
    let (mut all, mut seen, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    files(folder, &mut all);
    for (_, name) in super::MODULES {
        gather(&all, name, &mut seen, &mut kept)?;
    }
    let used = |path: &PathBuf| {
        let own = *path == folder.join(PACKAGE) || *path == kernel.image;
        own || kept.iter().any(|module| module.path == *path)
    };
    for path in all.iter().filter(|path| !used(path)) {
        let what = format!("remove {}", path.display());
        fs::remove_file(path).map_err(|error| GuestError::Io { what, error })?;
    }
    Ok(())
}

/// Files of a module and of those it needs, in the order in which they are loaded; nothing if it is built in, or if
/// the kernel has none of this name.
///
/// # Errors
/// If one cannot be read.
pub(super) fn modules(kernel: &Kernel, name: &str) -> Result<Vec<(String, Vec<u8>)>, GuestError> {
    let Some(folder) = &kernel.modules else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    files(&folder.join("kernel"), &mut all);
    let (mut seen, mut found) = (Vec::new(), Vec::new());
    gather(&all, name, &mut seen, &mut found)?;
    Ok(found.into_iter().map(|module| (module.name, module.bytes)).collect())
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

struct Module {
    name: String,
    path: PathBuf,
    bytes: Vec<u8>,
}

/// Finds a module and those that it needs, these first.
fn gather(all: &[PathBuf], name: &str, seen: &mut Vec<String>, found: &mut Vec<Module>) -> Result<(), GuestError> {
    let name = name.replace('-', "_");
    let same = |path: &PathBuf| {
        let file = path.file_name().map(|name| name.to_string_lossy().replace('-', "_")).unwrap_or_default();
        file.split_once(".ko").is_some_and(|(stem, _)| stem == name)
    };
    // Two that need each other must not make this endless.
    if seen.contains(&name) {
        return Ok(());
    }
    seen.push(name.clone());
    let Some(path) = all.iter().find(|path| same(path)) else { return Ok(()) };
    let bytes = unpacked(path)?;
    for needed in needs(&bytes) {
        gather(all, &needed, seen, found)?;
    }
    found.push(Module { name, path: path.clone(), bytes });
    Ok(())
}

/// Names of the modules that a module needs: `depends=` in its section `.modinfo`, whose strings end with a zero.
fn needs(module: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(at) = module.windows(key.len()).position(|window| window == key) else { return Vec::new() };
    let rest = &module[at + key.len()..];
    let list = &rest[..rest.iter().position(|byte| *byte == 0).unwrap_or(0)];
    String::from_utf8_lossy(list).split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    /// A bzImage as far as its head goes.
    fn head(version: &str) -> Vec<u8> {
        let mut bytes = vec![0; 0x400];
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x20e..0x210].copy_from_slice(&0x150_u16.to_le_bytes());
        bytes[0x350..0x350 + version.len()].copy_from_slice(version.as_bytes());
        bytes
    }

    #[test]
    fn kernels_are_found_in_files_and_folders() {
        let scratch = Scratch::new();
        let (ledger, _) = Ledger::open_in(&scratch.path("state")).expect("a ledger");
        let tree = scratch.path("tree");
        fs::create_dir_all(tree.join("boot")).expect("a folder");
        fs::create_dir_all(tree.join("lib/modules/6.1.10/kernel")).expect("a folder");
        fs::write(tree.join("boot/vmlinuz-6.1.9"), head("6.1.9 (me) #1")).expect("a file");
        fs::write(tree.join("boot/vmlinuz-6.1.10"), head("6.1.10 (me) #1")).expect("a file");
        fs::write(tree.join("boot/vmlinuz-6.1.11"), "nothing").expect("a file");
        let word = tree.to_string_lossy().into_owned();
        let kernel = find(&word, &scratch.path("s"), &ledger).expect("a kernel");
        let expected = Kernel {
            image: tree.join("boot/vmlinuz-6.1.10"),
            version: Some("6.1.10 (me) #1".to_owned()),
            package: None,
            modules: Some(tree.join("lib/modules/6.1.10")),
        };
        assert_eq!(kernel, expected);
        let one = tree.join("boot/vmlinuz-6.1.9");
        let one = find(&one.to_string_lossy(), &scratch.path("s"), &ledger).expect("a kernel");
        assert_eq!((one.version.as_deref(), one.modules), (Some("6.1.9 (me) #1"), None));
        for (path, expected) in [
            (tree.join("boot/vmlinuz-6.1.11"), "is not a kernel"),
            (tree.join("lib"), "no kernel in"),
            (tree.join("nowhere"), "debian-6.1"),
        ] {
            let error = find(&path.to_string_lossy(), &scratch.path("s"), &ledger).expect_err("no kernel");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn a_kernel_is_kept_without_what_guests_do_not_load() {
        let scratch = Scratch::new();
        let folder = scratch.path("p");
        let kernel = "lib/modules/6.1.9/kernel";
        let names = [
            ("boot/vmlinuz-6.1.9", head("6.1.9 (me)")),
            ("boot/System.map-6.1.9", Vec::new()),
            (PACKAGE, b"linux 6.1.9".to_vec()),
            (&format!("{kernel}/fs/xfs/xfs.ko"), b"\0depends=libcrc32c\0".to_vec()),
            (&format!("{kernel}/lib/libcrc32c.ko"), Vec::new()),
            (&format!("{kernel}/fs/btrfs/btrfs.ko"), b"\0depends=libcrc32c\0".to_vec()),
        ];
        for (name, bytes) in &names {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("a name has a folder")).expect("a folder");
            fs::write(path, bytes).expect("a file");
        }
        prune(&folder).expect("it has a kernel");
        let left: Vec<bool> = names.iter().map(|(name, _)| folder.join(name).exists()).collect();
        assert_eq!(left, [true, false, true, true, true, false]);
    }

    #[test]
    fn modules_come_after_those_that_they_need() {
        let scratch = Scratch::new();
        let module = |needs: &str| format!("\x7fELF..\0license=GPL\0depends={needs}\0name=x\0").into_bytes();
        let folder = scratch.path("m/kernel/fs/xfs");
        fs::create_dir_all(&folder).expect("a folder");
        for (name, needs) in [("xfs", "libcrc32c,a_b"), ("libcrc32c", ""), ("a-b", "libcrc32c,xfs")] {
            fs::write(folder.join(format!("{name}.ko")), module(needs)).expect("a file");
        }
        let kernel = Kernel { image: PathBuf::new(), version: None, package: None, modules: Some(scratch.path("m")) };
        let names = |name| -> Vec<String> {
            modules(&kernel, name).expect("they can be read").into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names("xfs"), ["libcrc32c", "a_b", "xfs"]);
        assert_eq!(names("a-b"), ["libcrc32c", "xfs", "a_b"]);
        assert_eq!(names("bfq"), [""; 0]);
    }
}
