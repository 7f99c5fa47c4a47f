//! The output of a call: its beginning and its end for the model, and all of it in a file if it is long.

use super::{root::Root, tool_error::ToolError};
use cap_std::fs::File;
use std::{
    collections::VecDeque,
    io::Write as _,
    path::{Path, PathBuf},
};

/// Length of the parts that the model reads, in bytes. The server keeps results of this size in the conversation.
const HEAD: usize = 4_000;
const TAIL: usize = 6_000;
/// Length at which a call is ended, in bytes.
const MAX_OUTPUT: u64 = 64 << 20;
/// The folder of the files, below that of the runner.
const FOLDER: &str = ".agentctl/output";

/// Collects the output of a call.
pub struct Output<'a> {
    root: &'a Root,
    /// Where all of the output goes if it is long.
    path: PathBuf,
    file: Option<File>,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    length: u64,
    /// Length of an output that the model reads as a whole, in bytes.
    whole: usize,
}

impl<'a> Output<'a> {
    /// Collects the output of the call with this id.
    pub fn new(root: &'a Root, call: &str) -> Self {
        let name: String = call.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let path = Path::new(FOLDER).join(format!("{name}.txt"));
        Self {
            root,
            path,
            file: None,
            head: Vec::new(),
            tail: VecDeque::new(),
            length: 0,
            whole: HEAD + TAIL,
        }
    }

    /// Lets the model read an output of up to `length` bytes as a whole, if that is longer than usual.
    pub fn keep(&mut self, length: usize) {
        self.whole = length.max(HEAD + TAIL);
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), ToolError> {
        self.length += piece.len() as u64;
        match &mut self.file {
            None => {
                self.head.extend(piece);
                if self.head.len() > self.whole {
                    let mut file = self.root.create(&self.path)?;
                    file.write_all(&self.head)?;
                    self.file = Some(file);
                    self.tail.extend(self.head.drain(HEAD..));
                }
            }
            Some(file) => {
                file.write_all(piece)?;
                self.tail.extend(piece);
            }
        }
        self.tail.drain(..self.tail.len().saturating_sub(TAIL));
        Ok(())
    }

    /// Returns whether the output has reached its limit.
    pub fn is_full(&self) -> bool {
        self.length > MAX_OUTPUT
    }

    /// Returns the file that has all of the output, if it is long.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_ref().map(|_| self.path.as_path())
    }

    /// Returns the text for the model.
    pub fn finish(self) -> String {
        let head = String::from_utf8_lossy(&self.head);
        if self.file.is_none() {
            return head.into_owned();
        }
        let tail: Vec<u8> = self.tail.into();
        let left_out = self.length - (self.head.len() + tail.len()) as u64;
        let (tail, path) = (String::from_utf8_lossy(&tail), self.path.display());
        format!("{head}\n[{left_out} bytes are left out here; all of the output is in {path}]\n{tail}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_output_has_a_beginning_an_end_and_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let mut short = Output::new(&root, "call_1");
        short.push(&[b'a'; HEAD]).unwrap();
        short.push(&[b'b'; TAIL]).unwrap();
        assert_eq!(short.finish().len(), HEAD + TAIL);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

        let mut long = Output::new(&root, "../call_2");
        let all = "a".repeat(HEAD) + &"b".repeat(50_000) + &"c".repeat(TAIL);
        for piece in all.as_bytes().chunks(7_777) {
            long.push(piece).unwrap();
        }
        assert_eq!(long.file(), Some(Path::new(".agentctl/output/call_2.txt")));
        let text = long.finish();
        let note = "\n[50000 bytes are left out here; all of the output is in .agentctl/output/call_2.txt]\n";
        assert_eq!(text, "a".repeat(HEAD) + note + &"c".repeat(TAIL));
        assert_eq!(std::fs::read_to_string(folder.path().join(".agentctl/output/call_2.txt")).unwrap(), all);
        assert_eq!(
            std::fs::read_to_string(folder.path().join(".agentctl/output/.gitignore")).unwrap(),
            "*\n"
        );
    }

    #[test]
    fn a_longer_result_can_be_kept_whole() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let mut output = Output::new(&root, "call_1");
        output.keep(50_000);
        output.push(&[b'a'; 50_000]).unwrap();
        assert_eq!(output.finish().len(), 50_000);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_file_is_not_written_through_a_link() {
        let outside = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join(".agentctl")).unwrap();
        let root = Root::open(folder.path()).unwrap();
        assert!(Output::new(&root, "c").push(&[0; 20_000]).is_err());
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}
