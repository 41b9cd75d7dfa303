//! Registries as trees of files, as they are and tampered with. Nothing is fetched from elsewhere.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::testing::Scratch;

/// Whether these programs are here: CI has them all.
fn have(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| run(program, &["--version".as_ref()], None).is_err());
    if let Some(program) = missing {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must have {program}");
        println!("skipped: no {program}");
    }
    missing.is_none()
}

fn put(root: &Path, name: &str, bytes: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
    fs::write(path, bytes).expect("a file");
}

fn sum(path: &Path) -> String {
    let shown = run("sha256sum", &[path.as_os_str()], None).expect("sums are made");
    shown.split(' ').next().expect("a sum").to_owned()
}

/// What a registry gives for a version: the names of packages, or the error.
fn got(
    registry: &Registry,
    (root, ring): (&Path, &Path),
    version: &str,
    scratch: &Path,
) -> Result<Vec<String>, String> {
    let _ = fs::remove_dir_all(scratch);
    fs::create_dir_all(scratch).expect("a folder");
    let found = registry.get_from((&format!("file://{}", root.display()), ring), version, scratch);
    let names = |all: Vec<(Package, PathBuf)>| {
        assert!(all.iter().all(|(_, file)| file.is_file()));
        all.into_iter().map(|(package, _)| package.name).collect()
    };
    found.map(names).map_err(|error| {
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("{error}: {source}")
    })
}

#[test]
fn words_name_registries_and_versions() {
    for (word, expected) in [
        ("debian-6.1", Some(("debian", "6.1"))),
        ("debian-6.12.3", Some(("debian", "6.12.3"))),
        ("ubuntu-24.04", Some(("ubuntu", "24.04"))),
        ("fedora-43", Some(("fedora", "43"))),
        ("fedora-6.17", Some(("fedora", "6.17"))),
        ("mainline-6.8.12", Some(("mainline", "6.8.12"))),
        ("debian-6", None),
        ("debian-", None),
        ("debian-6.x", None),
        ("mainline-6", None),
        ("suse-6.1", None),
        ("vmlinuz", None),
    ] {
        assert_eq!(of(word).map(|(registry, version)| (registry.name, version)), expected, "{word}");
    }
}

/// An archive of one suite with a key of its own.
struct Archive {
    registry: &'static Registry,
    suite: &'static str,
    scratch: Scratch,
}

impl Archive {
    fn new(registry: &'static Registry, suite: &'static str, pool: &[(&str, &str)]) -> Archive {
        let archive = Archive { registry, suite, scratch: Scratch::new() };
        let mut packages = String::new();
        for (name, version) in pool {
            let path = format!("pool/{name}.deb");
            put(&archive.root(), &path, &format!("contents of {name}"));
            let sum = sum(&archive.root().join(&path));
            packages.push_str(&format!(
                "Package: {name}\nVersion: {version}\nFilename: {path}\nSHA256: {sum}\nDescription: a\n b\n\n"
            ));
        }
        put(&archive.root(), &archive.index(), &packages);
        archive.sign();
        archive
    }

    fn debian() -> Archive {
        let pool = [
            ("linux-image-6.1.0-9-cloud-amd64", "6.1.27-1"),
            ("linux-image-6.1.0-50-cloud-amd64", "6.1.170-3"),
            ("linux-image-6.1.0-50-cloud-amd64-dbg", "6.1.170-3"),
            ("linux-image-6.1.0-51-amd64", "6.1.171-1"),
            ("linux-image-6.12.9+deb12-cloud-amd64", "6.12.9-1"),
        ];
        Archive::new(&debian::REGISTRY, "bookworm", &pool)
    }

    /// The index, below the root.
    fn index(&self) -> String {
        format!("dists/{}/main/binary-amd64/Packages", self.suite)
    }

    fn root(&self) -> PathBuf {
        self.scratch.path("archive")
    }

    fn keyring(&self) -> PathBuf {
        self.scratch.path("keyring.gpg")
    }

    /// Signs what the index is now.
    fn sign(&self) {
        let home = self.scratch.path("gpg");
        fs::create_dir_all(&home).expect("a folder");
        let home = home.to_string_lossy().into_owned();
        let gpg = |words: &str| {
            let line = format!("gpg --homedir {home} --batch --quiet --no-tty --pinentry-mode loopback {words}");
            run("sh", &["-c".as_ref(), line.as_ref()], None).expect("gpg makes it")
        };
        if !self.keyring().exists() {
            gpg("--passphrase '' --quick-generate-key 'Test <test@example.org>' rsa2048 sign never");
            gpg(&format!("--export -o {}", self.keyring().display()));
        }
        let index = self.root().join(self.index());
        let bytes = fs::metadata(&index).expect("it is there").len();
        let release = format!(
            "Suite: test\nMD5Sum:\n 00 {bytes} main/binary-amd64/Packages\nSHA256:\n {} {bytes} \
             main/binary-amd64/Packages\nAcquire-By-Hash: yes\n",
            sum(&index)
        );
        put(&self.root(), "Release", &release);
        let (from, to) = (self.root().join("Release"), self.root().join(format!("dists/{}/InRelease", self.suite)));
        let _ = fs::remove_file(&to);
        gpg(&format!("--passphrase '' --clearsign -o {} {}", to.display(), from.display()));
    }

    /// The packages of a version, by this keyring.
    fn get(&self, version: &str, ring: &Path) -> Result<Vec<String>, String> {
        got(self.registry, (&self.root(), ring), version, &self.scratch.path("got"))
    }
}

#[test]
fn an_archive_is_believed_as_far_as_its_signature_goes() {
    if !have(&["gpg", "gpgv", "curl", "sha256sum"]) {
        return;
    }
    let archive = Archive::debian();
    let ring = archive.keyring();
    let newest = Ok(vec!["linux-image-6.1.0-50-cloud-amd64 6.1.170-3".to_owned()]);
    assert_eq!(archive.get("6.1", &ring), newest);
    assert_eq!(archive.get("6.12", &ring), Ok(vec!["linux-image-6.12.9+deb12-cloud-amd64 6.12.9-1".to_owned()]));
    assert!(archive.get("6.18", &ring).is_err_and(|error| error.contains("no package linux-image-6.18.*-cloud")));
    let refused = |change: &dyn Fn(), ring: &Path, expected: &[&str]| {
        change();
        let error = archive.get("6.1", ring).expect_err("it is not what was signed");
        assert!(expected.iter().all(|part| error.contains(part)), "{expected:?}: {error}");
    };
    let root = archive.root();
    let edit = |name: &str, from: &str, to: &str| {
        let text = fs::read_to_string(root.join(name)).expect("a file");
        assert!(text.contains(from), "{name}");
        fs::write(root.join(name), text.replacen(from, to, 1)).expect("a file");
    };
    let package = "pool/linux-image-6.1.0-50-cloud-amd64.deb";
    refused(&|| edit(package, "contents", "Contents"), &ring, &["SHA-256", "refused", package, "kernel:DIR"]);
    edit(package, "Contents", "contents");
    let index = "dists/bookworm/main/binary-amd64/Packages";
    refused(&|| edit(index, "6.1.170-3", "6.1.170-4"), &ring, &["SHA-256", "refused", "binary-amd64/Packages"]);
    edit(index, "6.1.170-4", "6.1.170-3");
    let release = "dists/bookworm/InRelease";
    refused(&|| edit(release, "Suite: test", "Suite: Test"), &ring, &["its signature does not hold: refused"]);
    edit(release, "Suite: Test", "Suite: test");
    assert_eq!(archive.get("6.1", &ring), newest, "each change was the reason");
    // What stands around the signed text is not read.
    let before = fs::read_to_string(root.join(release)).expect("a file");
    fs::write(root.join(release), format!("SHA256:\n {} 1 main/binary-amd64/Packages\n{before}", "0".repeat(64)))
        .expect("a file");
    let read = archive.get("6.1", &ring);
    assert!(read == newest || read.is_err_and(|error| error.contains("refused")));
    fs::write(root.join(release), &before).expect("a file");
    // Another key, and none.
    let other = Archive::debian();
    refused(&|| (), &other.keyring(), &["its signature does not hold: refused"]);
    refused(&|| (), &root.join("nowhere.gpg"), &["no keyring", "apt-get install debian-archive-keyring"]);
}

#[test]
fn one_good_signature_is_enough_and_a_bad_one_too_much() {
    for (lines, expected) in [
        (&["GOODSIG 1 a", "VALIDSIG 1"][..], true),
        (&["ERRSIG 2 1 8 00 1 9 2", "NO_PUBKEY 2", "GOODSIG 1 a", "VALIDSIG 1"], true),
        (&["GOODSIG 1 a", "VALIDSIG 1", "BADSIG 2 b"], false),
        (&["EXPKEYSIG 1 a", "VALIDSIG 1"], false),
        (&["REVKEYSIG 1 a", "VALIDSIG 1"], false),
        (&["NO_PUBKEY 2"], false),
        (&["NODATA 1"], false),
        (&[], false),
    ] {
        let status: String = lines.iter().map(|line| format!("[GNUPG:] {line}\n")).collect();
        assert_eq!(is_good(&status), expected, "{status}");
    }
}

#[test]
fn kernels_of_ubuntu_come_with_their_modules() {
    if !have(&["gpg", "gpgv", "curl", "sha256sum"]) {
        return;
    }
    let pool = [
        ("linux-image-6.8.0-31-generic", "6.8.0-31.31"),
        ("linux-image-6.8.0-101-generic", "6.8.0-101.101"),
        ("linux-image-6.8.0-102-lowlatency", "6.8.0-102.102"),
        ("linux-modules-6.8.0-101-generic", "6.8.0-101.101"),
        ("linux-modules-extra-6.8.0-101-generic", "6.8.0-101.101"),
        ("linux-image-6.11.0-9-generic", "6.11.0-9.9"),
    ];
    let archive = Archive::new(&ubuntu::REGISTRY, "noble-updates", &pool);
    let names =
        ["linux-image-6.8.0-101-generic", "linux-modules-6.8.0-101-generic", "linux-modules-extra-6.8.0-101-generic"];
    let newest = names.map(|name| format!("{name} 6.8.0-101.101")).to_vec();
    let get = |version: &str| archive.get(version, &archive.keyring());
    assert_eq!((get("24.04"), get("6.8")), (Ok(newest.clone()), Ok(newest)));
    assert_eq!(get("6.11"), Ok(vec!["linux-image-6.11.0-9-generic 6.11.0-9.9".to_owned()]));
    assert!(get("6.2").is_err_and(|error| error.contains("releases 25.10, 25.04, 24.04")));
    assert!(get("22.04").is_err_and(|error| error.contains("none of its suites is there")));
}

#[test]
fn sums_of_a_release_are_those_of_sha256() {
    let release = "MD5Sum:\n 11 5 a\nSHA256:\n 22 5 a\n 33 6 b\nSHA512:\n 44 5 c\n";
    for (path, expected) in [("a", Some("22")), ("b", Some("33")), ("c", None), ("", None)] {
        assert_eq!(archive::sum_of(release, path), expected, "{path}");
    }
    assert_eq!(archive::sum_of("MD5Sum:\n 11 5 a\n", "a"), None);
}

#[test]
fn packages_of_fedora_are_found_by_release_and_by_kernel() {
    if !have(&["curl", "sha256sum"]) {
        return;
    }
    let scratch = Scratch::new();
    let (root, at) = (scratch.path("fedora"), scratch.path("got"));
    let folder = "releases/42/Everything/x86_64/os";
    let mut primary = String::from("<metadata packages=\"3\">\n");
    for (name, version, arch) in [
        ("kernel-core", "6.14.0", "x86_64"),
        ("kernel-core", "6.14.12", "x86_64"),
        ("kernel-core", "6.15.1", "aarch64"),
        ("kernel-modules-core", "6.14.12", "x86_64"),
        ("kernel-core-extra", "6.16.1", "x86_64"),
    ] {
        let path = format!("Packages/k/{name}-{version}.{arch}.rpm");
        put(&root, &format!("{folder}/{path}"), &format!("{name} {version}"));
        let sum = sum(&root.join(folder).join(&path));
        primary.push_str(&format!(
            "<package type=\"rpm\">\n  <name>{name}</name>\n  <arch>{arch}</arch>\n  <version epoch=\"0\" \
             ver=\"{version}\" rel=\"300.fc42\"/>\n  <checksum type=\"sha256\" pkgid=\"YES\">{sum}</checksum>\n  \
             <location href=\"{path}\"/>\n</package>\n"
        ));
    }
    put(&root, &format!("{folder}/repodata/primary.xml"), &primary);
    let of_index = sum(&root.join(folder).join("repodata/primary.xml"));
    let repomd = format!(
        "<repomd>\n<data type=\"filelists\">\n<checksum type=\"sha256\">0</checksum><location href=\"no\"/></data>\n\
         <data type=\"primary\">\n  <checksum type=\"sha256\">{of_index}</checksum>\n  <location \
         href=\"repodata/primary.xml\"/>\n</data>\n</repomd>\n"
    );
    put(&root, &format!("{folder}/repodata/repomd.xml"), &repomd);
    let newest = Ok(vec!["kernel-core 6.14.12-300.fc42".to_owned(), "kernel-modules-core 6.14.12-300.fc42".to_owned()]);
    let get = |version: &str| got(&fedora::REGISTRY, (&root, Path::new("")), version, &at);
    assert_eq!(get("42"), newest);
    assert_eq!(get("6.14"), newest);
    for (version, says) in [("6.15", "no kernel-core for 6.15"), ("41", "no kernel-core for 41"), ("6.1", "for 6.1")] {
        assert!(get(version).is_err_and(|error| error.contains(says)), "{version}");
    }
    put(&root, &format!("{folder}/Packages/k/kernel-core-6.14.12.x86_64.rpm"), "another");
    assert!(get("42").is_err_and(|error| error.contains("SHA-256") && error.contains("refused")));
    put(&root, &format!("{folder}/repodata/primary.xml"), &primary.replace("6.14.12", "6.14.13"));
    assert!(get("42").is_err_and(|error| error.contains("SHA-256") && error.contains("primary.xml")));
}

#[test]
fn mainline_builds_are_found_by_their_list_of_sums() {
    if !have(&["curl", "sha256sum"]) {
        return;
    }
    let scratch = Scratch::new();
    let (root, at) = (scratch.path("mainline"), scratch.path("got"));
    let mut sums =
        format!("# Checksums-Sha1\n{}  linux-image-unsigned-6.8.0-060800-generic_1_amd64.deb\n", "1".repeat(40));
    for name in [
        "linux-headers-6.8.0-060800_1_all.deb",
        "linux-image-unsigned-6.8.0-060800-lowlatency_1_amd64.deb",
        "linux-image-unsigned-6.8.0-060800-generic_1_amd64.deb",
        "linux-modules-6.8.0-060800-generic_1_amd64.deb",
    ] {
        put(&root, &format!("v6.8/amd64/{name}"), name);
        sums.push_str(&format!("{}  {name}\n", sum(&root.join("v6.8/amd64").join(name))));
    }
    put(&root, "v6.8/amd64/CHECKSUMS", &sums);
    let get = |version: &str| got(&mainline::REGISTRY, (&root, Path::new("")), version, &at);
    let names = ["linux-image-unsigned-6.8.0-060800-generic_1_amd64", "linux-modules-6.8.0-060800-generic_1_amd64"];
    assert_eq!(get("6.8"), Ok(names.map(str::to_owned).to_vec()));
    assert!(get("6.9").is_err_and(|error| error.contains("no build of 6.9")));
    put(&root, "v6.8/amd64/linux-modules-6.8.0-060800-generic_1_amd64.deb", "another");
    assert!(get("6.8").is_err_and(|error| error.contains("SHA-256") && error.contains("refused")));
}

#[test]
fn a_registry_that_cannot_be_reached_is_named_with_a_way_out() {
    if !have(&["curl"]) {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.path("got");
    fs::create_dir_all(&folder).expect("a folder");
    for (registry, version) in REGISTRIES.into_iter().zip(["6.1", "24.04", "43", "6.8"]) {
        // Nobody answers at the port of discarded data.
        let error =
            registry.get_from(("http://127.0.0.1:9", Path::new("")), version, &folder).expect_err("nobody is there");
        let GuestError::Registry { name, error } = error else { panic!("{error}") };
        let text = error.to_string();
        assert_eq!(name, registry.name);
        let expected = ["cannot reach http://127.0.0.1:9/", "kernel:DIR", registry.variable];
        assert!(expected.iter().all(|part| text.contains(part)), "{text}");
    }
}
