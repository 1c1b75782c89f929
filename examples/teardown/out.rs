//! Standard output that nobody has to read to its end.

use std::io::{self, ErrorKind, Stdout, Write};

/// Standard output. If its reader goes away, as in `teardown | head`, what follows is dropped: the job is done and its
/// books are checked all the same.
pub(crate) struct Out(Stdout);

impl Out {
    pub(crate) fn new() -> Self {
        Self(io::stdout())
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(bytes.len()),
            result => result,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            result => result,
        }
    }
}
