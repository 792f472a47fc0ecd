//! Disk image after a power loss: a disk may lose every byte written since the last flush of its
//! file.
//!
//! The log is written by `preload/disk.c`: the previous content before each write, and when each
//! flush began and ended. Data that is not flushed when the power fails may be on the disk or not,
//! sector by sector.

use std::{
    collections::{BTreeMap, HashMap, btree_map::Entry},
    fs::{self, File},
    io::Write as _,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::Path,
};

use anyhow::{Context as _, bail};
use fastrand::Rng;

/// Unit of an atomic disk write, in bytes.
const SECTOR: u64 = 512;
const HEAD: usize = 40;

/// How much of what was not flushed is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// Nothing: the kernel had written it all.
    Nothing,
    /// Everything, as if it had never been written.
    All,
    /// Each sector with a probability of one half.
    Sectors,
    /// Content of each file after an offset.
    Tail,
}

/// A record of the log.
#[derive(Clone, Debug)]
struct Record {
    kind: u8,
    inode: u64,
    offset: u64,
    length: u64,
    old: Vec<u8>,
}

impl Loss {
    pub(super) const ALL: [Self; 4] = [Self::Nothing, Self::All, Self::Sectors, Self::Tail];
}

/// Removes from `copy` what `original` had not flushed; returns the number of bytes reverted.
///
/// `original` must be at rest: every later entry of the log counts as not flushed.
pub(super) fn lose(
    log: &Path,
    original: &Path,
    copy: &Path,
    loss: Loss,
    random: &mut Rng,
) -> anyhow::Result<u64> {
    let records = open(read(log)?);
    let mut file = File::options().write(true).truncate(true).open(log)?;
    for record in &records {
        file.write_all(&record.bytes())?;
    }
    let mut writes: HashMap<u64, Vec<&Record>> = HashMap::new();
    for record in records.iter().filter(|it| it.kind == b'w') {
        writes.entry(record.inode).or_default().push(record);
    }
    let mut reverted = 0;
    let mut folders = vec![original.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let file = fs::symlink_metadata(&path)?;
            if file.is_dir() {
                folders.push(path);
            } else if let Some(writes) = writes.get(&file.ino()) {
                let damaged = copy.join(path.strip_prefix(original)?);
                reverted += revert(&damaged, writes, loss, random)
                    .with_context(|| format!("{} cannot be reverted", damaged.display()))?;
            }
        }
    }
    Ok(reverted)
}

/// Restores the content of one file at its last flush; returns the number of bytes reverted.
fn revert(path: &Path, writes: &[&Record], loss: Loss, random: &mut Rng) -> anyhow::Result<u64> {
    if loss == Loss::Nothing {
        return Ok(0);
    }
    let file = File::options().read(true).write(true).open(path)?;
    let size = file.metadata()?.len();
    let flushed = sectors(&file, writes)?;
    let kept = match loss {
        Loss::Tail => random.usize(..flushed.len().max(1)),
        _ => 0,
    };
    let mut reverted = 0;
    for (number, (sector, bytes)) in flushed.iter().enumerate() {
        let is_lost = match loss {
            Loss::Sectors => random.bool(),
            _ => number >= kept,
        };
        if is_lost && sector * SECTOR < size {
            let end = (size - sector * SECTOR).min(SECTOR);
            file.write_all_at(&bytes[..usize::try_from(end)?], sector * SECTOR)?;
            reverted += end;
        }
    }
    if loss == Loss::All {
        // The file had not grown either.
        let old_end = writes.iter().filter(|it| (it.old.len() as u64) < it.length);
        let old_end = old_end.map(|it| it.offset + it.old.len() as u64).min();
        file.set_len(old_end.unwrap_or(size).min(size))?;
    }
    Ok(reverted)
}

/// Each sector that was written since, as it was before.
fn sectors(file: &File, writes: &[&Record]) -> anyhow::Result<BTreeMap<u64, Vec<u8>>> {
    let mut sectors: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    // The newest write is undone first, so that the content before the oldest one remains.
    for write in writes.iter().rev() {
        let end = write.offset + write.length;
        for sector in write.offset / SECTOR..end.div_ceil(SECTOR) {
            let from = sector * SECTOR;
            let bytes = match sectors.entry(sector) {
                Entry::Occupied(it) => it.into_mut(),
                Entry::Vacant(it) => {
                    let mut now = vec![0; usize::try_from(SECTOR)?];
                    let mut filled = 0;
                    while filled < now.len() {
                        match file.read_at(&mut now[filled..], from + filled as u64)? {
                            0 => break,
                            more => filled += more,
                        }
                    }
                    it.insert(now)
                }
            };
            for at in write.offset.max(from)..end.min(from + SECTOR) {
                let old = write.old.get(usize::try_from(at - write.offset)?);
                bytes[usize::try_from(at - from)?] = old.copied().unwrap_or_default();
            }
        }
    }
    Ok(sectors)
}

/// What is open at the end: writes that no flush has covered, and flushes that have not ended.
fn open(records: Vec<Record>) -> Vec<Record> {
    let mut open: Vec<Record> = Vec::new();
    for record in records {
        let (inode, name) = (record.inode, record.offset);
        let until = match record.kind {
            b'e' => {
                let is_begin = |it: &Record| it.kind == b'b' && it.offset == name;
                let begin = open.iter().position(is_begin);
                begin.inspect(|at| drop(open.remove(*at))).unwrap_or(0)
            }
            b'u' => open.len(),
            _ => {
                open.push(record);
                continue;
            }
        };
        let mut count = 0;
        open.retain(|it| {
            count += 1;
            it.inode != inode || it.kind != b'w' || count > until
        });
    }
    open
}

fn read(log: &Path) -> anyhow::Result<Vec<Record>> {
    let bytes = fs::read(log).with_context(|| format!("{} cannot be read", log.display()))?;
    let mut rest = &bytes[..];
    let mut records = Vec::new();
    while rest.len() >= HEAD {
        let number = |at: usize| -> anyhow::Result<u64> {
            Ok(u64::from_ne_bytes(rest[at..at + 8].try_into()?))
        };
        let follows = usize::try_from(number(32)?)?;
        let Some(old) = rest[HEAD..].get(..follows) else {
            bail!("the log of the disk ends in the middle of a record");
        };
        records.push(Record {
            kind: rest[0],
            inode: number(8)?,
            offset: number(16)?,
            length: number(24)?,
            old: old.to_vec(),
        });
        rest = &rest[HEAD + follows..];
    }
    Ok(records)
}

impl Record {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind, 0, 0, 0, 0, 0, 0, 0];
        let follows = self.old.len() as u64;
        for number in [self.inode, self.offset, self.length, follows] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend(&self.old);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(inode: u64, offset: u64, length: u64, old: &[u8]) -> Record {
        let old = old.to_vec();
        Record {
            kind: b'w',
            inode,
            offset,
            length,
            old,
        }
    }

    fn mark(kind: u8, inode: u64, name: u64) -> Record {
        Record {
            kind,
            inode,
            offset: name,
            length: 0,
            old: Vec::new(),
        }
    }

    #[test]
    fn a_flush_covers_what_was_written_before_it_began() {
        let records = vec![
            write(1, 0, 4, b"aaaa"),
            mark(b'b', 1, 7),
            write(1, 4, 4, b"bbbb"),
            write(2, 0, 4, b"cccc"),
            mark(b'e', 1, 7),
        ];
        let open = open(records);
        let left: Vec<_> = open
            .iter()
            .map(|it| (it.kind, it.inode, it.offset))
            .collect();
        assert_eq!(left, [(b'w', 1, 4), (b'w', 2, 0)]);
    }

    #[test]
    fn a_flush_that_has_not_ended_covers_nothing_until_it_ends() {
        let first = open(vec![write(1, 0, 4, b"aaaa"), mark(b'b', 1, 7)]);
        assert_eq!(first.len(), 2);
        let mut later = first;
        later.push(mark(b'e', 1, 7));
        assert_eq!(open(later).len(), 0);
    }

    #[test]
    fn writes_of_a_deleted_file_do_not_affect_the_next_file_with_its_inode() {
        let open = open(vec![
            write(1, 0, 4, b"aaaa"),
            mark(b'u', 1, 0),
            write(1, 9, 1, b"x"),
        ]);
        assert_eq!(open.len(), 1);
        assert_eq!(open[0].offset, 9);
    }

    #[test]
    fn a_loss_restores_the_content_of_the_last_flush() {
        let folder = tempfile::tempdir().unwrap();
        let [original, copy] = ["original", "copy"].map(|it| folder.path().join(it));
        for folder in [&original, &copy] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("file"), b"flushed, NEWER and more").unwrap();
        }
        let inode = fs::metadata(original.join("file")).unwrap().ino();
        // Written twice since the flush: the content was "older", and the file ended there.
        let records = [write(inode, 9, 5, b"older"), write(inode, 9, 14, b"newer")];
        let log = folder.path().join("log");
        fs::write(
            &log,
            records.iter().flat_map(Record::bytes).collect::<Vec<_>>(),
        )
        .unwrap();
        let mut random = Rng::with_seed(1);
        let reverted = lose(&log, &original, &copy, Loss::All, &mut random).unwrap();
        assert!(reverted > 0);
        assert_eq!(fs::read(copy.join("file")).unwrap(), b"flushed, older");
        let nothing = lose(&log, &original, &original, Loss::Nothing, &mut random).unwrap();
        assert_eq!(nothing, 0);
    }
}
