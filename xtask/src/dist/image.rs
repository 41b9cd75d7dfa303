//! An image for containers: an OCI layout with one layer, which has only the command and its licences, as one tar.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{Dist, at, done, folder, sha256};
use crate::Outcome;
use crate::steps::is_installed;

/// Writes a blob of the layout; its descriptor.
fn blob(layout: &Path, kind: &str, bytes: &[u8]) -> Result<Value, String> {
    let digest = super::sha256_of(bytes);
    let path = layout.join("blobs/sha256").join(&digest);
    at(&path, fs::write(&path, bytes))?;
    Ok(json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": format!("sha256:{digest}"),
        "size": bytes.len()}))
}

/// Writes the image.
pub(super) fn write(dist: &Dist, to: &Path) -> Outcome {
    let layout = folder().join("image");
    if layout.exists() {
        at(&layout, fs::remove_dir_all(&layout))?;
    }
    let blobs = layout.join("blobs/sha256");
    at(&blobs, fs::create_dir_all(&blobs))?;
    let layer = folder().join("layer.tar");
    // Man pages and completions are of no use there.
    dist.tar(&dist.tree, "usr", &layer, &["--exclude=usr/share/[!d]*"])?;
    let diff = sha256(&layer)?;
    let layer = blob(&layout, "layer.v1.tar", &at(&layer, fs::read(&layer))?)?;
    let config = json!({
        "architecture": "amd64", "os": "linux",
        "config": {"Entrypoint": ["/usr/bin/iowhy"], "WorkingDir": "/",
            "Labels": {"org.opencontainers.image.licenses": "MIT OR Apache-2.0",
                "org.opencontainers.image.version": dist.version}},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{diff}")]},
        "history": [{"created_by": "cargo xtask dist"}],
    });
    let config = blob(&layout, "config.v1+json", config.to_string().as_bytes())?;
    let manifest = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config, "layers": [layer]});
    let mut manifest = blob(&layout, "manifest.v1+json", manifest.to_string().as_bytes())?;
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": dist.version});
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    at(&layout, fs::write(layout.join("index.json"), index.to_string()))?;
    at(&layout, fs::write(layout.join("oci-layout"), "{\"imageLayoutVersion\":\"1.0.0\"}"))?;
    if is_installed("umoci") {
        let bundle = folder().join("bundle");
        let _ = fs::remove_dir_all(&bundle);
        let image = format!("{}:{}", layout.display(), dist.version);
        done(Command::new("umoci").args(["unpack", "--rootless", "--image", &image]).arg(&bundle))?;
        done(Command::new(bundle.join("rootfs/usr/bin/iowhy")).arg("--version"))?;
        at(&bundle, fs::remove_dir_all(&bundle))?;
    } else {
        eprintln!("xtask: the image is not unpacked, umoci is not installed");
    }
    dist.tar(&layout, ".", to, &[])
}
