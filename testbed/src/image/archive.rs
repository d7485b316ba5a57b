//! The file format: a tar archive of one layer, the image's configuration and a manifest.
//!
//! This is Docker's image specification 1.2, the `docker save` format, which containerd can import.
//! Layer and configuration are named by their SHA-256.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::EntryType;

use super::{Image, ImageEntry};
use crate::files::{FileError, failed};

/// Writes an image's archive. A layer may be large and is never in memory: it is written to a file
/// next to the archive first, because its digest is needed before it.
pub(super) fn write(image: &Image, path: &Path) -> Result<(), FileError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".layer");
    let layer = path.with_file_name(name);
    let result = write_layer(image, &layer).and_then(|digest| {
        write_archive(image, path, &layer, &digest).map_err(failed("write", path))
    });
    // It does not exist if the first step failed at once.
    let _maybe_missing = fs::remove_file(&layer);
    result
}

/// A digest in hexadecimal.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes the layer and returns its digest.
fn write_layer(image: &Image, path: &Path) -> Result<String, FileError> {
    let file = File::create(path).map_err(failed("create", path))?;
    let output = DigestWriter { inner: BufWriter::new(file), digest: Sha256::new() };
    let mut archive = tar::Builder::new(output);
    for (place, entry) in with_parents(&image.entries) {
        append_entry(&mut archive, &place, &entry).map_err(failed("add", &place))?;
    }
    let mut output = archive.into_inner().map_err(failed("write", path))?;
    output.flush().map_err(failed("write", path))?;
    Ok(hexadecimal(&output.digest.finalize()))
}

fn write_archive(image: &Image, path: &Path, layer: &Path, digest: &str) -> io::Result<()> {
    let configuration = configuration(image, digest).to_string();
    let configuration_name = format!("{}.json", hexadecimal(&Sha256::digest(&configuration)));
    let layer_name = format!("{digest}.tar");
    let manifest = json!([{
        "Config": configuration_name,
        "RepoTags": [image.tag],
        "Layers": [layer_name],
    }])
    .to_string();

    let mut archive = tar::Builder::new(BufWriter::new(File::create(path)?));
    append(&mut archive, Path::new("manifest.json"), 0o644, manifest.as_bytes())?;
    append(&mut archive, Path::new(&configuration_name), 0o644, configuration.as_bytes())?;
    append_file(&mut archive, Path::new(&layer_name), 0o644, 0, layer)?;
    archive.into_inner()?.flush()
}

fn configuration(image: &Image, digest: &str) -> Value {
    const NO_TIME: &str = "1970-01-01T00:00:00Z";
    json!({
        "architecture": match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        },
        "os": "linux",
        "created": NO_TIME,
        "config": {
            "Entrypoint": image.entrypoint,
            "Cmd": image.command,
            "Env": image.environment,
            "User": image.user,
            "WorkingDir": "/",
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
        "history": [{ "created": NO_TIME, "created_by": "testbed" }],
    })
}

/// All entries with their parent directories: an unpacker may give a directory that is not listed
/// any mode.
fn with_parents(entries: &BTreeMap<PathBuf, ImageEntry>) -> BTreeMap<PathBuf, ImageEntry> {
    let mut all = entries.clone();
    for place in entries.keys() {
        for parent in place.ancestors().skip(1) {
            all.entry(parent.to_owned()).or_insert(ImageEntry::Directory { mode: 0o755 });
        }
    }
    // The root itself has no entry in a tar archive.
    all.remove(Path::new(""));
    all
}

fn append_entry<W: Write>(
    archive: &mut tar::Builder<W>,
    place: &Path,
    entry: &ImageEntry,
) -> io::Result<()> {
    match entry {
        ImageEntry::Directory { mode } => {
            archive.append_data(&mut header(EntryType::Directory, *mode, 0), place, io::empty())
        }
        ImageEntry::Link { target } => {
            archive.append_link(&mut header(EntryType::Symlink, 0o777, 0), place, target)
        }
        ImageEntry::Content { bytes, mode } => append(archive, place, *mode, bytes),
        ImageEntry::File { source, mode, modified } => {
            append_file(archive, place, *mode, *modified, source)
        }
    }
}

fn append<W: Write>(
    archive: &mut tar::Builder<W>,
    place: &Path,
    mode: u32,
    content: &[u8],
) -> io::Result<()> {
    let size = content.len() as u64;
    archive.append_data(&mut header(EntryType::Regular, mode, size), place, content)
}

fn append_file<W: Write>(
    archive: &mut tar::Builder<W>,
    place: &Path,
    mode: u32,
    modified: u64,
    source: &Path,
) -> io::Result<()> {
    let file = File::open(source)?;
    let size = file.metadata()?.len();
    let mut header = header(EntryType::Regular, mode, size);
    header.set_mtime(modified);
    // Exactly as many bytes as in the header, even if the file grows meanwhile.
    archive.append_data(&mut header, place, file.take(size))
}

fn header(kind: EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// Forwards bytes and computes their digest.
struct DigestWriter<W> {
    inner: W,
    digest: Sha256,
}

impl<W: Write> Write for DigestWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.digest.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("testbed-{name}-{}.tar", std::process::id()))
    }

    fn example() -> Image {
        Image::new("flux-operator.test/example:1")
            .content("hello\n", "/etc/greeting", 0o640)
            .file(Path::new("/bin/sh"), "/usr/bin/program", 0o755)
            .link("program", "/usr/bin/alias")
            .link("/usr/bin/program", "/init")
            .directory("/tmp", 0o1777)
            .entrypoint(["/init"])
            .user("1000")
    }

    fn entries_of(bytes: &[u8]) -> Vec<(String, tar::Header, Vec<u8>)> {
        let mut archive = tar::Archive::new(bytes);
        let read = |entry: io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (entry.path().unwrap().display().to_string(), entry.header().clone(), content)
        };
        archive.entries().unwrap().map(read).collect()
    }

    #[test]
    fn everything_is_named_by_its_digest() {
        let path = scratch("archive");
        example().write(&path).unwrap();
        let entries = entries_of(&fs::read(&path).unwrap());
        let content = |name: &str| {
            &entries.iter().find(|(each, ..)| each == name).unwrap_or_else(|| panic!("{name}")).2
        };
        let manifest: Value = serde_json::from_slice(content("manifest.json")).unwrap();
        assert_eq!(manifest[0]["RepoTags"][0], "flux-operator.test/example:1");

        let name = manifest[0]["Config"].as_str().unwrap();
        let configuration = content(name);
        assert_eq!(name, format!("{}.json", hexadecimal(&Sha256::digest(configuration))));

        let layer = content(manifest[0]["Layers"][0].as_str().unwrap());
        let configuration: Value = serde_json::from_slice(configuration).unwrap();
        assert_eq!(
            configuration["rootfs"]["diff_ids"][0],
            format!("sha256:{}", hexadecimal(&Sha256::digest(layer)))
        );
        assert_eq!(configuration["config"]["Entrypoint"][0], "/init");
        assert_eq!(configuration["config"]["User"], "1000");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_layer_has_modes_links_and_parents_in_order() {
        let path = scratch("layer");
        let digest = write_layer(&example(), &path).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(digest, hexadecimal(&Sha256::digest(&bytes)));
        let entries = entries_of(&bytes);
        let names: Vec<_> = entries.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "etc",
                "etc/greeting",
                "init",
                "tmp",
                "usr",
                "usr/bin",
                "usr/bin/alias",
                "usr/bin/program"
            ]
        );
        let header = |name: &str| &entries.iter().find(|(each, ..)| each == name).unwrap().1;
        assert_eq!(header("etc/greeting").mode().unwrap(), 0o640);
        assert_eq!(header("tmp").mode().unwrap(), 0o1777);
        assert_eq!(header("usr").entry_type(), EntryType::Directory);
        let target = |name: &str| header(name).link_name().unwrap().unwrap().into_owned();
        assert_eq!(target("usr/bin/alias"), Path::new("program"));
        assert_eq!(target("init"), Path::new("/usr/bin/program"));
        assert!(entries.iter().all(|(_, header, _)| header.mtime().unwrap() == 0));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_same_image_has_the_same_bytes() {
        let (one, two) = (scratch("one"), scratch("two"));
        example().write(&one).unwrap();
        example().write(&two).unwrap();
        assert!(fs::read(&one).unwrap() == fs::read(&two).unwrap());
        assert!(!one.with_extension("tar.layer").exists());
        fs::remove_file(&one).unwrap();
        fs::remove_file(&two).unwrap();
    }
}
