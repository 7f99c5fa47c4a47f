//! Writes a zip archive piece by piece. Entries are stored without compression, and their sizes follow their content, so
//! that nothing has to be kept but the directory at the end of the archive.
//!
//! The crates for zip archives write to a file or need an async runtime. These are the four records of the format that
//! an archive without compression and encryption needs (PKWARE's APPNOTE.TXT, section 4.3).

use crate::types::Timestamp;
use crc32fast::Hasher;

/// Largest size of an archive, and of each entry: larger ones need the extension Zip64.
const MAX_BYTES: u64 = u32::MAX as u64;
/// Bytes of an archive that are kept for its directory.
const RESERVED: u64 = 64 << 20;
/// Flags of an entry: the sizes follow the content (bit 3), and the name is UTF-8 (bit 11).
const FLAGS: u16 = 1 << 3 | 1 << 11;
/// Version of the format that a reader must support: 2.0.
const VERSION: u16 = 20;

/// An archive that is being written. Each method returns the bytes to append to it.
#[derive(Default)]
pub struct Zip {
    /// Number of bytes so far.
    written: u64,
    entries: Vec<Entry>,
    hasher: Hasher,
}

struct Entry {
    name: String,
    /// Time and date in the format of MS-DOS, in UTC.
    modified: [u16; 2],
    crc: u32,
    bytes: u64,
    offset: u64,
}

impl Zip {
    /// Begins an entry.
    pub fn begin(&mut self, name: &str, modified: Timestamp) -> Vec<u8> {
        let entry = Entry {
            name: name.to_owned(),
            modified: dos_time(modified),
            crc: 0,
            bytes: 0,
            offset: self.written,
        };
        self.hasher = Hasher::new();
        let mut header = Record::new(0x0403_4b50);
        header.u16(VERSION).u16(FLAGS).u16(0).u16(entry.modified[0]).u16(entry.modified[1]);
        // The checksum and the sizes follow the content.
        header.u32(0).u32(0).u32(0).length(entry.name.len()).u16(0).bytes(entry.name.as_bytes());
        self.entries.push(entry);
        self.wrote(header)
    }

    /// Returns whether the archive has room for `bytes` more.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.written + bytes as u64 <= MAX_BYTES - RESERVED
    }

    /// Adds content to the last entry. The content itself is to be appended to the archive.
    pub fn content(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.written += bytes.len() as u64;
        if let Some(entry) = self.entries.last_mut() {
            entry.bytes += bytes.len() as u64;
        }
    }

    /// Ends the last entry.
    pub fn end(&mut self) -> Vec<u8> {
        let mut descriptor = Record::new(0x0807_4b50);
        if let Some(entry) = self.entries.last_mut() {
            entry.crc = std::mem::take(&mut self.hasher).finalize();
            descriptor.u32(entry.crc).size(entry.bytes).size(entry.bytes);
        }
        self.wrote(descriptor)
    }

    /// Ends the archive with its directory.
    pub fn finish(mut self) -> Vec<u8> {
        let start = self.written;
        let count = u16::try_from(self.entries.len()).unwrap_or(u16::MAX);
        let mut all = Vec::new();
        for entry in std::mem::take(&mut self.entries) {
            let mut header = Record::new(0x0201_4b50);
            header.u16(VERSION).u16(VERSION).u16(FLAGS).u16(0);
            header.u16(entry.modified[0]).u16(entry.modified[1]);
            header.u32(entry.crc).size(entry.bytes).size(entry.bytes).length(entry.name.len());
            // No extra field, comment, disk number and attributes.
            header.u16(0).u16(0).u16(0).u16(0).u32(0).size(entry.offset).bytes(entry.name.as_bytes());
            all.extend(self.wrote(header));
        }
        let mut end = Record::new(0x0605_4b50);
        end.u16(0).u16(0).u16(count).u16(count).size(self.written - start).size(start).u16(0);
        all.extend(self.wrote(end));
        all
    }

    fn wrote(&mut self, Record(bytes): Record) -> Vec<u8> {
        self.written += bytes.len() as u64;
        bytes
    }
}

/// A record of the format, in little-endian order.
struct Record(Vec<u8>);

impl Record {
    fn new(signature: u32) -> Self {
        Self(signature.to_le_bytes().into())
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Adds the length of a name.
    fn length(&mut self, length: usize) -> &mut Self {
        self.u16(u16::try_from(length).unwrap_or(u16::MAX))
    }

    /// Adds a size, which [`Zip::has_room`] limits.
    fn size(&mut self, size: u64) -> &mut Self {
        self.u32(u32::try_from(size).unwrap_or(u32::MAX))
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// Returns a time as MS-DOS stores it: time, then date.
fn dos_time(at: Timestamp) -> [u16; 2] {
    // Such as 2026-11-20T12:00:00.000Z.
    let text = at.to_rfc3339();
    let number = |range| text.get(range).and_then(|digits: &str| digits.parse().ok()).unwrap_or(0u16);
    let date = number(0..4).saturating_sub(1980) << 9 | number(5..7) << 5 | number(8..10);
    [number(11..13) << 11 | number(14..16) << 5 | (number(17..19) / 2), date]
}
